// Simulates the kernels of training's rows on the host, for bfloat16 tensors on
// the device of tests/fakes/torch_device. Linked in place of
// model/fast/device_rows.cc, it runs the GPU's path through a layer on a
// machine without a GPU. dapd_cuda_fakes_test runs the kernels themselves.
#pragma once

#include <cstdint>

namespace dapd::fake {

// Returns the bytes that the simulated kernels have read and written since the
// last call: every number of every row once, weights of norms and angles once
// per launch.
int64_t TakeRowBytes();
// Returns the number of launches since the last call.
int64_t TakeRowLaunches();

}  // namespace dapd::fake
