// Packs matrices in panels (decode_kernels.h). This file is compiled once per
// CPU level.
#include "common/kernels/decode_kernel_cpu_levels.h"
#include "common/kernels/packed_gemm_pack.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// PairWords for floats whose lower halves are zero. It is exact also where the
// rounding instruction would turn the smallest numbers into zeros.
struct UpperHalfWords {
  static constexpr int64_t kDepth = 2;

  static Words Steps(const float* line, int64_t s) {
    const auto* from = line + 2 * s;
    return Pairs(Load<Words>(from),
                 Load<Words>(from + kLanes),
                 std::make_integer_sequence<int, kLanes>());
  }
  static uint32_t Step(const float* line, int64_t s, int64_t depth) {
    const uint32_t first = BitsOfFloat(line[2 * s]) >> 16;
    return 2 * s + 1 < depth ? first | BitsOfFloat(line[2 * s + 1]) : first;
  }

 private:
  template <int... kLane>
  static Words Pairs(const Words& a,
                     const Words& b,
                     std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(a, b, (2 * kLane)...) >> 16 |
           __builtin_shufflevector(a, b, (2 * kLane + 1)...);
  }
};

template <typename Format, typename T>
void PackPanel(const T* rows, int64_t count, int64_t depth, void* panel) {
  static_assert(kPanelWidth % kLanes == 0);
  for (int64_t n = 0; n < kPanelWidth; n += kLanes) {
    const int64_t left = count > n ? count - n : 0;
    PackLines<Format>(left > 0 ? rows + n * depth : rows,
                      depth,
                      left < kLanes ? left : kLanes,
                      depth,
                      kPanelWidth,
                      static_cast<uint32_t*>(panel) + n);
  }
}

void PackFloat32Panel(const float* rows,
                      int64_t count,
                      int64_t depth,
                      float* panel) {
  PackPanel<FloatWords>(rows, count, depth, panel);
}

void PackBFloat16Panel(const BFloat16* rows,
                       int64_t count,
                       int64_t depth,
                       uint16_t* panel) {
  PackPanel<PairWords>(rows, count, depth, panel);
}

void PackUpperHalvesPanel(const float* rows,
                          int64_t count,
                          int64_t depth,
                          uint16_t* panel) {
  PackPanel<UpperHalfWords>(rows, count, depth, panel);
}

}  // namespace

void AddPanelKernels(DecodeKernels* kernels) {
  kernels->pack_float32_panel = PackFloat32Panel;
  kernels->pack_bfloat16_panel = PackBFloat16Panel;
  kernels->pack_upper_halves_panel = PackUpperHalvesPanel;
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
