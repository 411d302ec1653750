// Fills the parameters of FlashAttention-3's kernels, whose other fields are
// for pages, splits, windows, rotations and 8-bit numbers. The host tests it.
#pragma once

#include <cuda_runtime_api.h>  // flash.h needs it

#include "common/kernels/cuda/flash_attention_3.h"
#include "flash.h"  // of FlashAttention-3

namespace dapd {

// `multiprocessors`: of the device.
Flash_fwd_params ForwardParamsOf(const FlashAttention3Args& args,
                                 int multiprocessors);
Flash_bwd_params BackwardParamsOf(const FlashAttention3BackwardArgs& args,
                                  int multiprocessors);

}  // namespace dapd
