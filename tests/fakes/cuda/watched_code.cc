// The functions that the compiler calls at every memory access of code built
// with -fsanitize=thread, and where -fsanitize=alignment,bounds,... finds an
// error. The names are the compiler's; the sanitizers' own libraries are not
// linked.

#include <cstdint>

#include "absl/strings/str_cat.h"

#include "tests/fakes/cuda/device.h"

namespace {

using dapd::fake::Access;
using dapd::fake::WatchAccess;

// The beginning of every description that the compiler passes.
struct Place {
  const char* file;
  uint32_t line;
  uint32_t column;
};

void Report(const void* description, const char* what) {
  if (!dapd::fake::IsInKernel()) return;
  const auto* place = static_cast<const Place*>(description);
  dapd::fake::EndKernel(
      absl::StrCat(what, " at ", place->file, ":", place->line));
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}

void __tsan_read1(void* from) { WatchAccess(from, 1, Access::kRead); }
void __tsan_read2(void* from) { WatchAccess(from, 2, Access::kRead); }
void __tsan_read4(void* from) { WatchAccess(from, 4, Access::kRead); }
void __tsan_read8(void* from) { WatchAccess(from, 8, Access::kRead); }
void __tsan_read16(void* from) { WatchAccess(from, 16, Access::kRead); }
void __tsan_read_range(void* from, unsigned long bytes) {
  WatchAccess(from, bytes, Access::kRead);
}
void __tsan_write1(void* to) { WatchAccess(to, 1, Access::kWrite); }
void __tsan_write2(void* to) { WatchAccess(to, 2, Access::kWrite); }
void __tsan_write4(void* to) { WatchAccess(to, 4, Access::kWrite); }
void __tsan_write8(void* to) { WatchAccess(to, 8, Access::kWrite); }
void __tsan_write16(void* to) { WatchAccess(to, 16, Access::kWrite); }
void __tsan_write_range(void* to, unsigned long bytes) {
  WatchAccess(to, bytes, Access::kWrite);
}

void __ubsan_handle_type_mismatch_v1(void* description, void* /*pointer*/) {
  Report(description, "an address that its type is not aligned to,");
}
void __ubsan_handle_out_of_bounds(void* description, void* /*index*/) {
  Report(description, "an index outside of its array,");
}
void __ubsan_handle_add_overflow(void* description, void*, void*) {
  Report(description, "an integer overflow");
}
void __ubsan_handle_sub_overflow(void* description, void*, void*) {
  Report(description, "an integer overflow");
}
void __ubsan_handle_mul_overflow(void* description, void*, void*) {
  Report(description, "an integer overflow");
}
void __ubsan_handle_negate_overflow(void* description, void*) {
  Report(description, "an integer overflow");
}
void __ubsan_handle_divrem_overflow(void* description, void*, void*) {
  Report(description, "a division by 0");
}
void __ubsan_handle_shift_out_of_bounds(void* description, void*, void*) {
  Report(description, "a shift by more bits than there are,");
}

}  // extern "C"
