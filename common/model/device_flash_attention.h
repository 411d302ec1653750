// Finds FlashAttention-3 (kernels/cuda/flash_attention_3.h) for the present
// device. tests/fakes/torch_device/flash_attention_on_host.cc replaces
// device_flash_attention.cc and simulates a device that has it.
#pragma once

#include "common/kernels/cuda/flash_attention_3.h"

namespace dapd {

struct FlashAttention3 {
  decltype(&DapdCudaFlashAttention3Forward) forward = nullptr;
  decltype(&DapdCudaFlashAttention3Backward) backward = nullptr;
};

// Returns the launchers of libdapd_cuda.so. Null if the device is no sm_90, in
// a build without these kernels, and if they compute something else than
// LibTorch (flash_attention_3_check.h), of which the log warns. The first call
// compares them; LibTorch's deterministic algorithms are set before it, or not
// at all.
const FlashAttention3* FlashAttention3OfDevice();

}  // namespace dapd
