#include "common/kernels/cpu_features.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "common/base/check.h"

namespace dapd {
namespace {

constexpr const char* kNames[] = {
    "baseline", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__x86_64__)
// Bits of EDX in CPUID 7.0. The compilers' own names for these bits differ by
// version.
constexpr unsigned kAmxBf16 = 1U << 22;
constexpr unsigned kAmxTile = 1U << 24;
// This bit of XCR0 says that the kernel saves the tiles when it switches
// threads.
constexpr unsigned kTileState = 3U << 17;

// Asks the kernel to let this process use tiles (arch_prctl, Linux 5.16).
// Returns whether the processor has tiles and the kernel agreed.
bool MayUseTiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 ||
      (d & (kAmxBf16 | kAmxTile)) != (kAmxBf16 | kAmxTile)) {
    return false;
  }
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return (low & kTileState) == kTileState &&
         ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

CpuLevel ReadLevel() {
  const char* wanted = std::getenv("DAPD_CPU_LEVEL");
  if (wanted == nullptr) return MachineCpuLevel();
  int level = 0;
  constexpr int kLevels = std::size(kNames);
  while (level < kLevels && std::strcmp(wanted, kNames[level]) != 0) ++level;
  Check(level < kLevels,
        "DAPD_CPU_LEVEL is baseline, avx2, avx512, avx512_bf16 or amx");
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
  if (!__builtin_cpu_supports("avx512bf16")) return CpuLevel::kAvx512;
  static const bool has_tiles = MayUseTiles();
  return has_tiles ? CpuLevel::kAmx : CpuLevel::kAvx512Bf16;
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
