#include "common/tensor/torch_bridge.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_error.h"
#include "common/base/status_macros.h"

namespace dapd {

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kUInt8:
      return at::kByte;
  }
  return at::kFloat;
}

absl::StatusOr<DType> FromScalarType(at::ScalarType type) {
  for (const DType dtype : {DType::kFloat32,
                            DType::kBFloat16,
                            DType::kFloat16,
                            DType::kInt32,
                            DType::kInt64,
                            DType::kUInt8}) {
    if (ToScalarType(dtype) == type) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype ", c10::toString(type), " is not supported"));
}

at::Tensor ToTorch(const HostTensor& tensor) {
  return at::from_blob(
      tensor.data.get(),
      tensor.shape,
      [keep_alive = tensor.data](void*) mutable { keep_alive.reset(); },
      at::TensorOptions().dtype(ToScalarType(tensor.dtype)));
}

absl::StatusOr<HostTensor> FromTorch(const at::Tensor& tensor) {
  HostTensor host;
  ASSIGN_OR_RETURN(host.dtype, FromScalarType(tensor.scalar_type()));
  const at::Tensor dense = tensor.detach().cpu().contiguous();
  host.shape = dense.sizes().vec();
  // The deleter's copy of `dense` keeps the storage.
  host.data = std::shared_ptr<char>(static_cast<char*>(dense.data_ptr()),
                                    [dense](char*) {});
  return host;
}

absl::Status CatchTorch(const std::function<absl::Status()>& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return absl::Status(IsOutOfMemory(error)
                            ? absl::StatusCode::kResourceExhausted
                            : absl::StatusCode::kInternal,
                        text.substr(0, text.find('\n')));
  } catch (const StatusError& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  }
}

// LibTorch has a type of its own for a GPU's; on the CPU the message tells.
bool IsOutOfMemory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         absl::StrContains(error.what(), "DefaultCPUAllocator");
}

}  // namespace dapd
