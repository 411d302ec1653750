// Decides by the configuration where a model is computed, and in which
// precision.
#pragma once

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns the device of a choice; kAuto chooses CUDA if this build and machine
// offer it, else the CPU, with a warning if there is a GPU that cannot be used.
// Returns a CONFIG error that names the missing part if CUDA is required but
// not usable, or if CUDA_VISIBLE_DEVICES is wrong.
absl::StatusOr<at::Device> DeviceOf(DeviceChoice choice);

// Returns the device that `model` asks for and sets up LibTorch for it, for the
// whole process. On CUDA: attention needs no plan for each shape, sums of
// bfloat16 products are float32, with model.deterministic only operations with
// repeatable bits run, and CatchTorch checks whether the device still works.
// Call this once, before anything computes.
absl::StatusOr<at::Device> OpenDevice(const ModelSection& model);

// Makes OpenDevice's settings in `context`. For tests: OpenDevice makes them in
// LibTorch's own context.
void SetUpCuda(bool deterministic, at::Context& context);

at::ScalarType TypeOf(Precision precision);
// Returns kFloat32 for all types but bfloat16.
Precision PrecisionOf(at::ScalarType dtype);

// Sets the number of compute threads of this process; 0: OMP_NUM_THREADS, or
// one thread per core that it may use (thread_share.h), because LibTorch
// ignores a container's limit.
void SetComputeThreads(int64_t num_threads);

}  // namespace dapd
