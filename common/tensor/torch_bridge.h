// The one place where at::Tensor and HostTensor meet, and where LibTorch's
// exceptions become Status.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/tensor/aten.h"
#include "common/tensor/host_tensor.h"

namespace dapd {

at::ScalarType ToScalarType(DType dtype);
// INVALID_ARGUMENT for a dtype that HostTensor does not have.
absl::StatusOr<DType> FromScalarType(at::ScalarType type);

// Shares the memory: the result keeps `tensor.data` alive. CPU.
at::Tensor ToTorch(const HostTensor& tensor);

// Shares the memory where the tensor is contiguous on the CPU, else copies.
absl::StatusOr<HostTensor> FromTorch(const at::Tensor& tensor);

// Runs `work`; an exception becomes a Status: out of memory RESOURCE_EXHAUSTED,
// any other c10::Error INTERNAL, with LibTorch's first line as the message, a
// StatusError the status that it carries. Where the device has failed for good
// (SetDeviceCheck), ABORTED: this process has to be started again.
absl::Status CatchTorch(const std::function<absl::Status()>& work);

// How CatchTorch learns after an error, other than a want of memory, whether
// the device that this process computes on still works: OK, or why it never
// will again. Null, as at first: nobody is asked. May be called on any thread.
// Where one is set, an exception that nobody can catch (std::terminate) on a
// device that has failed ends the process for a restart (end_for_restart.h).
using DeviceCheck = absl::Status (*)();
void SetDeviceCheck(DeviceCheck check);

// Whether an allocation failed, on a GPU or on the CPU.
bool IsOutOfMemory(const c10::Error& error);

// Throws c10::Error where a launch of one of our own kernels, `what`, was
// answered with a cudaError_t, for want of memory c10::OutOfMemoryError: CUDA
// loads a kernel when it is first launched, onto a device that may be full.
void CheckLaunch(int error, const char* what);

}  // namespace dapd
