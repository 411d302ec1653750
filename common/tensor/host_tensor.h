// HostTensor: a dense row-major tensor in main memory that knows neither
// LibTorch nor protobuf. It is what crosses between the compute files (which
// see at::Tensor) and the gRPC and file adapters (which see bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

enum class DType { kFloat32, kBFloat16, kFloat16, kInt32, kInt64, kUInt8 };

// 4, 2, 2, 4, 8, 1.
int64_t DTypeBytes(DType dtype);
// "float32", "bfloat16", ... as in configs and messages.
absl::string_view DTypeName(DType dtype);

// The number of elements of `shape`; INVALID_ARGUMENT for a negative extent or
// a product whose bytes would not fit 63 bits.
absl::StatusOr<int64_t> CheckedNumElements(const std::vector<int64_t>& shape,
                                           DType dtype);

// What HostTensor::Allocate's storage is aligned to, in bytes.
inline constexpr size_t kTensorAlignment = 64;

// A value type: copies share the (immutable by convention) storage.
struct HostTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  // shape-product * DTypeBytes(dtype) bytes, aligned to
  // kTensorAlignment, owned jointly.
  std::shared_ptr<char> data;

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * DTypeBytes(dtype); }
  absl::string_view bytes() const {
    return {data.get(), static_cast<size_t>(num_bytes())};
  }

  // Uninitialised storage, in huge pages where it is large.
  // RESOURCE_EXHAUSTED if it cannot be allocated.
  static absl::StatusOr<HostTensor> Allocate(DType dtype,
                                             std::vector<int64_t> shape);
  // The same for what is needed again and again in one size, as adapters are:
  // of such storage the process keeps the one that was let go last and hands
  // it out again. New pages are two fifths of what receiving an adapter costs.
  static absl::StatusOr<HostTensor> AllocateRecurring(
      DType dtype, std::vector<int64_t> shape);
};

// Whether no element of a floating-point tensor is an infinity or a NaN; true
// for the other types. One pass at the speed of memory.
bool AllFinite(const HostTensor& tensor);

}  // namespace dapd
