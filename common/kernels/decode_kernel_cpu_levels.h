// What the sources that are compiled once per CPU level give to
// decode_kernels.cc: a level's functions fill the table of that level.
#pragma once

#include "common/kernels/decode_kernels.h"

#define DAPD_DECLARE_LEVEL(level)               \
  namespace dapd::level {                       \
  void AddGemmKernels(DecodeKernels* kernels);  \
  void AddPanelKernels(DecodeKernels* kernels); \
  void AddRowKernels(DecodeKernels* kernels);   \
  }

DAPD_DECLARE_LEVEL(baseline)
DAPD_DECLARE_LEVEL(avx2)
DAPD_DECLARE_LEVEL(avx512)
DAPD_DECLARE_LEVEL(avx512_bf16)

#undef DAPD_DECLARE_LEVEL

// Of the products of bfloat16 alone there is a level with tiles; they replace
// those of the level below.
namespace dapd::amx {
void AddTileGemmKernels(DecodeKernels* kernels);
}
