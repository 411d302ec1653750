// This is the only place where at::Tensor and HostTensor are converted into
// each other, and where LibTorch's exceptions become Status.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/tensor/aten.h"
#include "common/tensor/host_tensor.h"

namespace dapd {

at::ScalarType ToScalarType(DType dtype);
// Returns INVALID_ARGUMENT for a dtype that HostTensor does not have.
absl::StatusOr<DType> FromScalarType(at::ScalarType type);

// Shares the memory: the result keeps `tensor.data` alive. The result is on the
// CPU.
at::Tensor ToTorch(const HostTensor& tensor);

// Shares the memory if the tensor is contiguous on the CPU; otherwise copies
// it.
absl::StatusOr<HostTensor> FromTorch(const at::Tensor& tensor);

// Runs `work` and turns an exception into a Status: RESOURCE_EXHAUSTED if
// memory is exhausted; INTERNAL with LibTorch's first line for any other
// c10::Error; the carried status for a StatusError. If the device has failed
// for good (SetDeviceCheck), returns ABORTED: this process must be restarted.
absl::Status CatchTorch(const std::function<absl::Status()>& work);

// CatchTorch calls `check` after an error, except when memory is exhausted, to
// learn whether the device of this process still works. `check` returns OK, or
// why the device will never work again. Null, the initial value, means that
// there is no check. May be called on any thread. With a check, an exception
// that nobody can catch (std::terminate) on a failed device ends the process
// for a restart (end_for_restart.h).
using DeviceCheck = absl::Status (*)();
void SetDeviceCheck(DeviceCheck check);

// Returns whether an allocation failed, on a GPU or on the CPU.
bool IsOutOfMemory(const c10::Error& error);

// Throws c10::Error if the launch of one of this project's kernels, `what`,
// returned an error, and c10::OutOfMemoryError if memory was exhausted: CUDA
// loads a kernel at its first launch, onto a device that may be full.
void CheckLaunch(int error, const char* what);

}  // namespace dapd
