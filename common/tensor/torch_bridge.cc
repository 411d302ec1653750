#include "common/tensor/torch_bridge.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/end_for_restart.h"
#include "common/base/failpoint.h"
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

namespace {

std::atomic<DeviceCheck> device_check = nullptr;

absl::Status DeviceLost(absl::string_view why) {
  return absl::AbortedError(absl::StrCat(
      "the device has failed and will work again only in a new process: ",
      why));
}

std::terminate_handler otherwise = nullptr;

// Destructors also call the device, to free memory that copies still read or to
// mark a point in a stream. On a failed device they throw while the first error
// is on its way to CatchTorch. That ends the process before anybody could
// report the error.
[[noreturn]] void EndIfDeviceIsLost() {
  // No step on a working device takes longer.
  constexpr unsigned kDeviceSeconds = 120;
  const DeviceCheck check = device_check;
  if (check != nullptr) EndForRestartAfter(kDeviceSeconds);
  const absl::Status device = check == nullptr ? absl::OkStatus() : check();
  if (!device.ok()) {
    EndForRestart(DeviceLost(
        absl::StrCat(std::string(device.message()), ", first seen at an end")));
  }
  otherwise();
  std::abort();
}

absl::Status StatusOfError(const c10::Error& error) {
  std::string text = error.what_without_backtrace();
  text.resize(std::min(text.size(), text.find('\n')));
  if (IsOutOfMemory(error)) return absl::ResourceExhaustedError(text);
  const DeviceCheck check = device_check;
  if (check == nullptr) return absl::InternalError(text);
  const absl::Status device = check();
  if (device.ok()) return absl::InternalError(text);
  return DeviceLost(
      absl::StrCat(std::string(device.message()), ", first seen as: ", text));
}

}  // namespace

void SetDeviceCheck(DeviceCheck check) {
  device_check = check;
  if (check == nullptr) return;
  [[maybe_unused]] static const bool is_set = [] {
    otherwise = std::set_terminate(EndIfDeviceIsLost);
    return true;
  }();
}

absl::Status CatchTorch(const std::function<absl::Status()>& work) {
  const absl::Status injected = DAPD_FAILPOINT_STATUS("device.compute");
  if (!injected.ok()) return DeviceLost(injected.message());
  try {
    return work();
  } catch (const c10::Error& error) {
    return StatusOfError(error);
  } catch (const StatusError& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  }
}

// LibTorch has an exception type for allocations that its GPU allocator
// refuses. The driver, cuBLAS and the CPU report them only in the message.
bool IsOutOfMemory(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  const absl::string_view text = error.what();
  return absl::StrContains(text, "DefaultCPUAllocator") ||
         absl::StrContains(text, "out of memory") ||
         absl::StrContains(text, "CUBLAS_STATUS_ALLOC_FAILED");
}

void CheckLaunch(int error, const char* what) {
  constexpr int kMemoryAllocation = 2;  // cudaErrorMemoryAllocation
  TORCH_CHECK_WITH(OutOfMemoryError,
                   error != kMemoryAllocation,
                   what,
                   " did not start: out of memory");
  TORCH_CHECK(error == 0, what, " did not start: CUDA error ", error);
}

}  // namespace dapd
