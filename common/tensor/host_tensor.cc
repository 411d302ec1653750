#include "common/tensor/host_tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// From this size on, at most a quarter of the memory is rounding.
constexpr size_t kLarge = 4 * kHugePage;

// Returns whether all bits of `exponent`, which are below the sign, are set in
// one of the `count` numbers. IEEE 754 marks numbers that are not finite in
// this way. The function works on eight bytes at a time. Adding one to the last
// bit of an exponent carries into the sign only if all bits of the exponent are
// set.
template <typename Bits>
bool AnyHasAll(const char* numbers, int64_t count, Bits exponent) {
  constexpr uint64_t kEach = ~uint64_t{0} / static_cast<Bits>(~Bits{0});
  const uint64_t exponents = kEach * exponent;
  const uint64_t ones = kEach * static_cast<Bits>(exponent & -exponent);
  const uint64_t signs = kEach << (8 * sizeof(Bits) - 1);
  const auto bytes = static_cast<size_t>(count) * sizeof(Bits);
  uint64_t found = 0;
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, numbers + at, sizeof(word));
    found |= (word & exponents) + ones;
  }
  // The missing bytes of the last word are zero, which is finite.
  uint64_t rest = 0;
  std::memcpy(&rest, numbers + at, bytes - at);
  found |= (rest & exponents) + ones;
  return (found & signs) != 0;
}

// Returns the size of a storage for `bytes` bytes, rounded up to whole pages if
// it is large.
size_t RoundUp(size_t bytes) {
  const size_t alignment = bytes < kLarge ? kTensorAlignment : kHugePage;
  return (bytes / alignment + 1) * alignment;
}

absl::StatusOr<char*> AllocateStorage(size_t rounded) {
  const size_t alignment = rounded < kLarge ? kTensorAlignment : kHugePage;
  auto* memory = static_cast<char*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a tensor of ", rounded, " bytes"));
  }
  // Without huge pages the first write to every 4 KiB causes a trap. This is
  // advice: if the kernel ignores it, nothing else changes.
  if (alignment == kHugePage) ::madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

// Keeps the recurring storage that was released last.
class KeptStorage {
 public:
  static KeptStorage& Instance() {
    static auto* kept = new KeptStorage;
    return *kept;
  }

  // Returns null if there is none of this size.
  char* Take(size_t size) {
    MutexLock lock(&mutex_);
    return size == size_ ? std::exchange(memory_, nullptr) : nullptr;
  }
  void Put(char* memory, size_t size) {
    MutexLock lock(&mutex_);
    size_ = size;
    std::free(std::exchange(memory_, memory));
  }

 private:
  Mutex mutex_;
  char* memory_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kInt64:
      return 8;
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
  }
  return "";
}

absl::StatusOr<int64_t> CheckedNumElements(const std::vector<int64_t>& shape,
                                           DType dtype) {
  const int64_t limit = std::numeric_limits<int64_t>::max() / DTypeBytes(dtype);
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > limit / extent)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape [", absl::StrJoin(shape, ", "), "] is impossible"));
    }
    count *= extent;
  }
  return count;
}

int64_t HostTensor::num_elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

absl::StatusOr<HostTensor> HostTensor::Allocate(DType dtype,
                                                std::vector<int64_t> shape) {
  ASSIGN_OR_RETURN(const int64_t count, CheckedNumElements(shape, dtype));
  ASSIGN_OR_RETURN(
      char* const memory,
      AllocateStorage(RoundUp(static_cast<size_t>(count * DTypeBytes(dtype)))));
  return HostTensor{
      dtype, std::move(shape), std::shared_ptr<char>(memory, [](char* p) {
        std::free(p);
      })};
}

absl::StatusOr<HostTensor> HostTensor::AllocateRecurring(
    DType dtype, std::vector<int64_t> shape) {
  ASSIGN_OR_RETURN(const int64_t count, CheckedNumElements(shape, dtype));
  const size_t size = RoundUp(static_cast<size_t>(count * DTypeBytes(dtype)));
  char* memory = KeptStorage::Instance().Take(size);
  if (memory == nullptr) {
    ASSIGN_OR_RETURN(memory, AllocateStorage(size));
  }
  return HostTensor{
      dtype, std::move(shape), std::shared_ptr<char>(memory, [size](char* p) {
        KeptStorage::Instance().Put(p, size);
      })};
}

bool AllFinite(const HostTensor& tensor) {
  const char* numbers = tensor.data.get();
  const int64_t count = tensor.num_elements();
  switch (tensor.dtype) {
    case DType::kFloat32:
      return !AnyHasAll<uint32_t>(numbers, count, 0x7f800000);
    case DType::kBFloat16:
      return !AnyHasAll<uint16_t>(numbers, count, 0x7f80);
    case DType::kFloat16:
      return !AnyHasAll<uint16_t>(numbers, count, 0x7c00);
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
      return true;
  }
  return true;
}

}  // namespace dapd
