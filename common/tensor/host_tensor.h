// HostTensor is a dense row-major tensor in main memory that knows neither
// LibTorch nor protobuf. It is passed between the compute files (which use
// at::Tensor) and the gRPC and file adapters (which use bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

enum class DType { kFloat32, kBFloat16, kFloat16, kInt32, kInt64, kUInt8 };

// Returns 4, 2, 2, 4, 8, 1.
int64_t DTypeBytes(DType dtype);
// Returns "float32", "bfloat16", ... as in configurations and messages.
absl::string_view DTypeName(DType dtype);

// Returns the number of elements of `shape`; INVALID_ARGUMENT for a negative
// extent, or if the size in bytes does not fit 63 bits.
absl::StatusOr<int64_t> CheckedNumElements(const std::vector<int64_t>& shape,
                                           DType dtype);

// HostTensor::Allocate aligns its storage to this number of bytes.
inline constexpr size_t kTensorAlignment = 64;

// HostTensor is a value type: copies share the storage, which is immutable by
// convention.
struct HostTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  // shape-product * DTypeBytes(dtype) bytes, aligned to kTensorAlignment, with
  // shared ownership.
  std::shared_ptr<char> data;

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * DTypeBytes(dtype); }
  absl::string_view bytes() const {
    return {data.get(), static_cast<size_t>(num_bytes())};
  }

  // Allocates uninitialised storage, in huge pages if it is large. Returns
  // RESOURCE_EXHAUSTED if it cannot be allocated.
  static absl::StatusOr<HostTensor> Allocate(DType dtype,
                                             std::vector<int64_t> shape);
  // Allocates storage that is needed repeatedly in one size, as adapters are.
  // The process keeps the storage of this kind that was released last, and
  // returns it again. New pages are two fifths of the cost of receiving an
  // adapter.
  static absl::StatusOr<HostTensor> AllocateRecurring(
      DType dtype, std::vector<int64_t> shape);
};

// Returns whether no element of a floating-point tensor is an infinity or a
// NaN; true for other types. Makes one pass at the speed of memory.
bool AllFinite(const HostTensor& tensor);

}  // namespace dapd
