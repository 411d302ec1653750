#include "common/generation/cpu/mapped_memory.h"

#include <sys/mman.h>

#include <new>

namespace dapd {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;

std::unique_ptr<void, UnmapMemory> Map(int64_t bytes, int flags) {
  const auto size = static_cast<size_t>(bytes);
  void* memory = ::mmap(nullptr,
                        size,
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | flags,
                        -1,
                        0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return std::unique_ptr<void, UnmapMemory>(memory, UnmapMemory{size});
}

}  // namespace

void UnmapMemory::operator()(void* memory) const { ::munmap(memory, bytes); }

HugeBuffer::HugeBuffer(int64_t bytes) {
  if (bytes == 0) return;
  memory_ = Map(bytes, 0);
  // This is advice only: without it the memory works too, but slower. A small
  // buffer would take a whole huge page.
  if (bytes >= kHugePage) {
    ::madvise(memory_.get(), static_cast<size_t>(bytes), MADV_HUGEPAGE);
  }
}

SparseBuffer::SparseBuffer(int64_t bytes) : memory_(Map(bytes, MAP_NORESERVE)) {
  // Where huge pages are the default, one byte would take 2 MiB. A kernel
  // without huge pages rejects the advice and does not need it.
  ::madvise(memory_.get(), static_cast<size_t>(bytes), MADV_NOHUGEPAGE);
}

}  // namespace dapd
