#include "common/kernels/decode_kernels.h"

#include <array>

#include "common/kernels/decode_kernel_cpu_levels.h"

namespace dapd {
namespace {

using Table = std::array<DecodeKernels, 5>;  // by CpuLevel

Table MakeTable() {
  Table table{};
  baseline::AddGemmKernels(&table[0]);
  baseline::AddPanelKernels(&table[0]);
  baseline::AddRowKernels(&table[0]);
#ifdef __x86_64__
  avx2::AddGemmKernels(&table[1]);
  avx2::AddPanelKernels(&table[1]);
  avx2::AddRowKernels(&table[1]);
  avx512::AddGemmKernels(&table[2]);
  avx512::AddPanelKernels(&table[2]);
  avx512::AddRowKernels(&table[2]);
  avx512_bf16::AddGemmKernels(&table[3]);
  avx512_bf16::AddPanelKernels(&table[3]);
  avx512_bf16::AddRowKernels(&table[3]);
  table[4] = table[3];
  amx::AddTileGemmKernels(&table[4]);
#endif
  return table;
}

}  // namespace

const DecodeKernels& DecodeKernelsOf(CpuLevel level) {
  static const Table table = MakeTable();
  return table[static_cast<size_t>(level)];
}

}  // namespace dapd
