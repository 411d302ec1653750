// Instantiates the kernels of FlashAttention-3 that are needed here: causal, of
// several lengths, in bfloat16, without pages, splits or softcap. Each file
// that nvcc compiles has one of them (CMakeLists.txt), so that they compile
// side by side.
#pragma once

// The kernels' headers end the process if a call of CUDA fails. Here the
// launcher returns the error; the macro is theirs.
#include "cuda_check.h"
#undef CHECK_CUDA
#define CHECK_CUDA(call)                                        \
  do {                                                          \
    const cudaError_t status = call;                            \
    if (status != cudaSuccess) throw dapd::LaunchError{status}; \
  } while (0)

#include "common/kernels/cuda/flash_attention_3_launch.h"
#include "flash_bwd_launch_template.h"
#include "flash_fwd_launch_template.h"

namespace dapd {

template <int kHeadDim>
void RunFlashAttention3Forward(Flash_fwd_params& params, cudaStream_t stream) {
  using Number = cutlass::bfloat16_t;
  run_flash_fwd</*Arch=*/90,
                kHeadDim,
                /*kHeadDimV=*/kHeadDim,
                /*ClusterM=*/1,
                Number,
                /*ElementOut=*/Number,
                /*Is_causal=*/true,
                /*Is_local=*/false,
                /*Has_softcap=*/false,
                /*Varlen=*/true,
                /*PagedKVNonTMA=*/false,
                /*AppendKV=*/false,
                /*HasQv=*/false,
                /*PackGQA=*/false,
                /*Split=*/false,
                /*V_colmajor=*/false>(params, stream);
}

// The numbers are FlashAttention-3's own choice for causal attention on sm_90
// (run_mha_bwd_hdim* in flash_bwd_launch_template.h). The kernel that adds the
// gradients of several query heads also serves models whose heads share
// nothing.
template <int kHeadDim, bool kIsDeterministic>
void RunFlashAttention3Backward(Flash_bwd_params& params, cudaStream_t stream) {
  static_assert(HasFlashAttention3(kHeadDim, kIsDeterministic));
  constexpr FlashAttention3Tile kTile = BackwardTileOf(kHeadDim);
  constexpr bool kIsWide = kHeadDim == 256;
  run_flash_bwd</*Arch=*/90,
                kHeadDim,
                static_cast<int>(kTile.queries),
                static_cast<int>(kTile.keys),
                cutlass::bfloat16_t,
                /*Is_causal=*/true,
                /*Is_local=*/false,
                /*Has_softcap=*/false,
                /*Varlen=*/true,
                kIsDeterministic,
                /*GQA=*/true,
                /*Stages_dO=*/kIsWide ? 1 : 2,
                /*Stages_dS_or_QSm80=*/kIsWide ? 1 : 2,
                /*SdP_swapAB=*/!kIsWide,
                /*dKV_swapAB=*/kIsWide,
                /*dQ_swapAB=*/kIsWide,
                /*NumMmaWarpGroups=*/2,
                /*AtomLayoutMSdP=*/1,
                /*AtomLayoutNdKV=*/kIsWide ? 1 : 2,
                /*AtomLayoutMdQ=*/kHeadDim == 64 ? 2 : 1,
                /*V_in_regs=*/false>(params, stream);
}

}  // namespace dapd
