// Where and in what precision a model is computed, from the configuration.
#pragma once

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/tensor/aten.h"

namespace dapd {

// kAuto: CUDA if this build and machine offer it, else the CPU, with a warning
// where there is a GPU that cannot be used. CONFIG error, which says what is
// missing, if CUDA is asked for and cannot be had, or if CUDA_VISIBLE_DEVICES
// is wrong.
absl::StatusOr<at::Device> DeviceOf(DeviceChoice choice);

// The device that `model` asks for, made ready to compute as `model` says:
// on CUDA attention without a plan a shape, sums of bfloat16 products in
// float32, with model.deterministic only what gives the same bits each time
// (LibTorch's settings, which are the process's), and CatchTorch asks whether
// the device still works. To be called once, before anything computes.
absl::StatusOr<at::Device> OpenDevice(const ModelSection& model);

// Those settings. For tests: OpenDevice makes them in LibTorch's own context.
void SetUpCuda(bool deterministic, at::Context& context);

at::ScalarType TypeOf(Precision precision);
// kFloat32 for all types but bfloat16.
Precision PrecisionOf(at::ScalarType dtype);

// Compute threads of this process; 0: OMP_NUM_THREADS, or one per core that it
// may use (thread_share.h), where LibTorch would not see a container's limit.
void SetComputeThreads(int64_t num_threads);

}  // namespace dapd
