#include "common/tensor/host_tensor.h"

#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {
constexpr size_t kAlignment = 64;
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
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  auto* memory = static_cast<char*>(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a tensor of ", bytes, " bytes"));
  }
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = std::shared_ptr<char>(memory, [](char* p) { std::free(p); });
  return tensor;
}

}  // namespace dapd
