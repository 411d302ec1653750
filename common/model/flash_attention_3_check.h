// Compares FlashAttention-3 with LibTorch on this process's device, before the
// first use: its kernels need instructions that no simulated device has, so a
// card of another kind or a driver's fault would otherwise be noticed in the
// results of a run, or never.
#pragma once

#include <string>

#include "common/model/device_flash_attention.h"

namespace dapd {

// Computes small sequences of every width that FlashAttention3For takes at
// present, forward and backward, by `kernels` and by LibTorch in float32.
// Returns the first disagreement beyond bfloat16's rounding, as a text to
// follow "FlashAttention-3 is not used: ", or an empty text. Takes some
// milliseconds. Throws c10::OutOfMemoryError if memory is exhausted.
std::string FaultOfFlashAttention3(const FlashAttention3& kernels);

}  // namespace dapd
