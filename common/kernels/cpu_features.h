// Chooses the instruction set of the CPU kernels. Each kernel is compiled once
// per level; the level is chosen when the program runs, so one build serves
// every machine.
#pragma once

namespace dapd {

// Each level contains the levels before it.
enum class CpuLevel {
  kBaseline,    // what the compiler assumes of every machine
  kAvx2,        // with FMA
  kAvx512,      // F, BW, DQ, VL
  kAvx512Bf16,  // with dot products of bfloat16 pairs
  kAmx,         // with products of bfloat16 tiles, if the kernel permits them
};

// Returns the highest level that this machine has.
CpuLevel MachineCpuLevel();

// Returns the level that kernels use: the machine's level, lowered by the
// environment variable DAPD_CPU_LEVEL (baseline, avx2, avx512, avx512_bf16,
// amx), which is read once. Any other value ends the process.
CpuLevel CpuLevelInUse();

const char* CpuLevelName(CpuLevel level);

}  // namespace dapd
