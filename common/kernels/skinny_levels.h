// What the sources that are compiled once a level give to skinny_kernels.cc: a
// level's functions fill the table of that level.
#pragma once

#include "common/kernels/skinny_kernels.h"

#define DAPD_DECLARE_LEVEL(level)              \
  namespace dapd::level {                      \
  void AddGemmKernels(SkinnyKernels* kernels); \
  void AddRowKernels(SkinnyKernels* kernels);  \
  }

DAPD_DECLARE_LEVEL(baseline)
DAPD_DECLARE_LEVEL(avx2)
DAPD_DECLARE_LEVEL(avx512)
DAPD_DECLARE_LEVEL(avx512_bf16)

#undef DAPD_DECLARE_LEVEL
