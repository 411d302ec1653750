#include "common/kernels/decode_kernels.h"

#include "common/kernels/cpu_level_tables.h"
#include "common/kernels/decode_kernel_cpu_levels.h"

namespace dapd {

#if defined(__x86_64__)
namespace {

DecodeKernels MakeAmxKernels() {
  DecodeKernels kernels = avx512_bf16::MakeDecodeKernels();
  amx::AddTileGemmKernels(&kernels);
  return kernels;
}

}  // namespace
#endif

const DecodeKernels& DecodeKernelsOf(CpuLevel level) {
  static CpuLevelTables<DecodeKernels> tables({
    .baseline = baseline::MakeDecodeKernels,
#if defined(__x86_64__)
    .avx2 = avx2::MakeDecodeKernels, .avx512 = avx512::MakeDecodeKernels,
    .avx512_bf16 = avx512_bf16::MakeDecodeKernels, .amx = MakeAmxKernels,
#endif
  });
  return tables.Of(level);
}

}  // namespace dapd
