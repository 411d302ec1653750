// The launches of FlashAttention-3, one for each kernel: between the launcher
// (flash_attention_3.cc) and the files that nvcc compiles
// (flash_attention_3_kernels.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include "common/kernels/flash_attention_3_memory.h"
#include "flash.h"  // of FlashAttention-3

namespace dapd {

// Thrown if a call of CUDA fails.
struct LaunchError {
  cudaError_t code = cudaSuccess;
};

// Both launch on `stream`; `params` is not changed.
template <int kHeadDim>
void RunFlashAttention3Forward(Flash_fwd_params& params, cudaStream_t stream);
template <int kHeadDim, bool kIsDeterministic>
void RunFlashAttention3Backward(Flash_bwd_params& params, cudaStream_t stream);

}  // namespace dapd
