#include "common/tensor/host_tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// From here on at most a quarter of the memory is rounding.
constexpr size_t kLarge = 4 * kHugePage;

// Whether all bits of `exponent` are set in one of the `count` numbers, which
// is how IEEE 754 marks what is not finite.
template <typename Bits>
bool AnyHasAll(const char* numbers, int64_t count, Bits exponent) {
  const auto* values = reinterpret_cast<const Bits*>(numbers);
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found |= static_cast<Bits>((values[i] & exponent) == exponent);
  }
  return found != 0;
}

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
  const auto bytes = static_cast<size_t>(count * DTypeBytes(dtype));
  const size_t alignment = bytes < kLarge ? kTensorAlignment : kHugePage;
  const size_t rounded = (bytes / alignment + 1) * alignment;
  auto* memory = static_cast<char*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a tensor of ", bytes, " bytes"));
  }
  // Without it the first write to every 4 KiB is a trap of its own. Advice:
  // where the kernel does not take it, nothing else changes.
  if (alignment == kHugePage) ::madvise(memory, rounded, MADV_HUGEPAGE);
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = std::shared_ptr<char>(memory, [](char* p) { std::free(p); });
  return tensor;
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
