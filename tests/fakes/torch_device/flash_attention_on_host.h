// Simulates FlashAttention-3's kernels on the device of
// tests/fakes/torch_device. Linked in place of model/device_flash_attention.cc.
#pragma once

#include <cstdint>

namespace dapd::fake {

// A device whose kernels are wrong somewhere.
enum class FlashAttention3Fault {
  kNone,
  kOutput,     // a number of the last sequence
  kGradientK,  // a number of the first sequence
  kNoNumber,   // a gradient of the queries is NaN
  kLaunch,     // the backward launch fails
};

// As long as an object exists, the device has the kernels.
class SimulatedFlashAttention3 {
 public:
  SimulatedFlashAttention3();
  ~SimulatedFlashAttention3();
  SimulatedFlashAttention3(const SimulatedFlashAttention3&) = delete;
  SimulatedFlashAttention3& operator=(const SimulatedFlashAttention3&) = delete;

  // Return the number of launches since the last call.
  static int64_t TakeForwards();
  static int64_t TakeBackwards();

  // Sets the fault of the next launches.
  static void SetFault(FlashAttention3Fault fault);
};

}  // namespace dapd::fake
