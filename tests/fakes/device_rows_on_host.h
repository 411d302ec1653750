// A device with the kernels of training's rows, simulated by the host for
// bfloat16 tensors on the device of tests/fakes/torch_device: linked in place
// of model/fast/device_rows.cc it runs the GPU's way through a layer on a
// machine without one. The kernels themselves are run by dapd_cuda_fakes_test.
#pragma once

#include <cstdint>

namespace dapd::fake {

// What the simulated kernels have read and written since the last call: every
// number of every row once, weights of norms and angles once a call.
int64_t TakeRowBytes();
// How often they were launched since the last call.
int64_t TakeRowLaunches();

}  // namespace dapd::fake
