// Simulates the loss kernel of kernels/cuda/divergence_kernel.h on the host,
// for tensors on the device of tests/fakes/torch_device: its CPU twin computes
// the passes. It is linked in place of objective/token_passes.cc. The device
// has the kernel while a SimulatedTokenPasses lives. dapd_cuda_fakes_test runs
// the kernel itself.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd::fake {

class SimulatedTokenPasses {
 public:
  // The simulated kernel computes `at_a_time` tokens at a time.
  explicit SimulatedTokenPasses(int64_t at_a_time);
  ~SimulatedTokenPasses();
  SimulatedTokenPasses(const SimulatedTokenPasses&) = delete;
  SimulatedTokenPasses& operator=(const SimulatedTokenPasses&) = delete;

  // Returns the tokens of each chunk since the last call.
  std::vector<int64_t> TakeChunks();
};

}  // namespace dapd::fake
