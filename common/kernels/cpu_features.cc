#include "common/kernels/cpu_features.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/base/check.h"

namespace dapd {
namespace {

constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16"};

CpuLevel ReadLevel() {
  const char* wanted = std::getenv("DAPD_CPU_LEVEL");
  if (wanted == nullptr) return MachineCpuLevel();
  int level = 0;
  while (level < 4 && std::strcmp(wanted, kNames[level]) != 0) ++level;
  Check(level < 4, "DAPD_CPU_LEVEL is baseline, avx2, avx512 or avx512_bf16");
  return std::min(static_cast<CpuLevel>(level), MachineCpuLevel());
}

}  // namespace

CpuLevel MachineCpuLevel() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return CpuLevel::kBaseline;
  }
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return CpuLevel::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") ? CpuLevel::kAvx512Bf16
                                              : CpuLevel::kAvx512;
#else
  return CpuLevel::kBaseline;
#endif
}

CpuLevel CpuLevelInUse() {
  static const CpuLevel level = ReadLevel();
  return level;
}

const char* CpuLevelName(CpuLevel level) {
  return kNames[static_cast<int>(level)];
}

}  // namespace dapd
