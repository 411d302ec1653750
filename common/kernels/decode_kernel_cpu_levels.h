// Declares the tables that the sources of decoding make, once per CpuLevel, for
// decode_kernels.cc. decode_gemm.cc makes a level's table; decode_panels.cc and
// decode_rows.cc add their kernels to it.
#pragma once

#include "common/kernels/decode_kernels.h"

#define DAPD_DECLARE_LEVEL(level)               \
  namespace dapd::level {                       \
  DecodeKernels MakeDecodeKernels();            \
  void AddPanelKernels(DecodeKernels* kernels); \
  void AddRowKernels(DecodeKernels* kernels);   \
  }

DAPD_DECLARE_LEVEL(baseline)
DAPD_DECLARE_LEVEL(avx2)
DAPD_DECLARE_LEVEL(avx512)
DAPD_DECLARE_LEVEL(avx512_bf16)

#undef DAPD_DECLARE_LEVEL

// With tiles there are only products of bfloat16; they replace the products of
// the level below.
namespace dapd::amx {
void AddTileGemmKernels(DecodeKernels* kernels);
}
