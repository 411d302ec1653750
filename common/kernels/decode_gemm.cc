// Products with panels (decode_kernels.h), compiled once per CPU level.
#include "common/kernels/decode_kernel_cpu_levels.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "common/kernels/bfloat16.h"
#include "common/kernels/simd.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

constexpr int kVectors = static_cast<int>(kPanelWidth) / kLanes;
// The largest number of accumulators that leaves registers for a column of the
// panel.
constexpr int kMaxRows = kLanes == 16 ? 12 : kLanes == 8 ? 3 : 1;
// A block of a panel stays in the first-level cache while all groups of rows
// pass over it.
constexpr int64_t kBlockBytes = 32768;

// Calls function(row, v) for each sum. Of the panel's vectors and the rows'
// numbers it keeps the smaller group in registers beside the sums: with both
// loops in the other order the compiler would hold too much and spill.
template <int kRows, typename Function>
inline void ForEachSum(const Function& function) {
  if constexpr (kVectors < kMaxRows) {
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) function(row, v);
    }
  } else {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) function(row, v);
    }
  }
}

// Steps along k in one kind of panel. kDepth is the number of k in one step.
struct Float32Step {
  using Weight = float;
  using Input = float;
  static constexpr int64_t kDepth = 1;

  template <int kRows>
  static void Run(const float* panel,
                  const float* x,
                  Floats (&sums)[kRows][kVectors]) {
    ForEachSum<kRows>([&](int row, int v) __attribute__((always_inline)) {
      sums[row][v] += Load<Floats>(panel + v * kLanes) * x[row];
    });
  }
};

struct BFloat16Step {
  using Weight = uint16_t;
  using Input = float;
  static constexpr int64_t kDepth = 2;

  template <int kRows>
  static void Run(const uint16_t* panel,
                  const float* x,
                  Floats (&sums)[kRows][kVectors]) {
    ForEachSum<kRows>([&](int row, int v) __attribute__((always_inline)) {
      const Words pairs = Load<Words>(panel + 2 * v * kLanes);
      const Words low = pairs << 16;
      const Words high = pairs & 0xFFFF0000U;
      sums[row][v] += reinterpret_cast<Floats>(low) * x[row];
      sums[row][v] += reinterpret_cast<Floats>(high) * x[kRows + row];
    });
  }
};

#ifdef __AVX512BF16__
struct BFloat16DotStep {
  using Weight = uint16_t;
  using Input = uint16_t;
  static constexpr int64_t kDepth = 2;

  template <int kRows>
  static void Run(const uint16_t* panel,
                  const uint16_t* x,
                  Floats (&sums)[kRows][kVectors]) {
    ForEachSum<kRows>([&](int row, int v) __attribute__((always_inline)) {
      int32_t pair;
      __builtin_memcpy(&pair, x + 2 * row, sizeof(pair));
      sums[row][v] =
          _mm512_dpbf16_ps(sums[row][v],
                           reinterpret_cast<__m512bh>(
                               _mm512_loadu_si512(panel + 2 * v * kLanes)),
                           reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)));
    });
  }
};
#endif

// Computes one group of kRows rows over `depth` of a panel. If `first`, the
// sums start at zero, otherwise at the values in y. Meanwhile it fetches memory
// from `ahead` on into the second-level cache, `ahead_step` bytes per step, at
// most two cache lines.
template <typename Step, int kRows>
void Tile(const typename Step::Weight* panel,
          const typename Step::Input* x,
          int64_t depth,
          bool first,
          const char* ahead,
          int64_t ahead_step,
          float* y,
          int64_t y_stride) {
  Floats sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] =
          first ? Floats{} : Load<Floats>(y + row * y_stride + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; k += Step::kDepth) {
    Step::template Run<kRows>(panel, x, sums);
    __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(ahead + ahead_step / 2, 0, 2);
    ahead += ahead_step;
    panel += Step::kDepth * kPanelWidth;
    x += Step::kDepth * kRows;
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(sums[row][v], y + row * y_stride + v * kLanes);
    }
  }
}

template <typename Step, int kRows, typename... Arguments>
void TileOf(int64_t rows, Arguments... arguments) {
  if (rows == kRows) {
    Tile<Step, kRows>(arguments...);
  } else if constexpr (kRows > 1) {
    TileOf<Step, kRows - 1>(rows, arguments...);
  }
}

// Calls do(first row, rows) for groups of nearly equal size.
template <typename Function>
void ForGroups(int64_t rows, const Function& function) {
  const int64_t groups = (rows + kMaxRows - 1) / kMaxRows;
  int64_t begin = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t end = rows * (group + 1) / groups;
    function(group, begin, end - begin);
    begin = end;
  }
}

template <typename Step>
void Product(const typename Step::Weight* panel,
             const typename Step::Input* packed,
             int64_t rows,
             int64_t depth,
             float* y,
             int64_t y_stride) {
  constexpr int64_t kBlock =
      kBlockBytes / kPanelWidth / static_cast<int64_t>(sizeof(*panel));
  constexpr int64_t kStepBytes =
      Step::kDepth * kPanelWidth * static_cast<int64_t>(sizeof(*panel));
  static_assert(kStepBytes <= 2 * 64);
  for (int64_t k = 0; k < depth; k += kBlock) {
    const int64_t block = depth - k < kBlock ? depth - k : kBlock;
    const auto* here = panel + k * kPanelWidth;
    const auto* next =
        reinterpret_cast<const char*>(here) + block / Step::kDepth * kStepBytes;
    ForGroups(rows, [&](int64_t group, int64_t row, int64_t count) {
      // A single group fetches the whole next block while it computes. Several
      // groups divide the fetches among themselves, one cache line per step.
      const int64_t lines = rows <= kMaxRows ? kStepBytes : 64;
      const char* ahead = next + group * lines * (block / Step::kDepth);
      const bool useful = rows <= kMaxRows || group * lines < kStepBytes;
      TileOf<Step, kMaxRows>(count,
                             here,
                             packed + row * depth + k * count,
                             block,
                             k == 0,
                             useful ? ahead : next,
                             useful ? lines : int64_t{0},
                             y + row * y_stride,
                             y_stride);
    });
  }
}

void PackFloat32(const float* x,
                 int64_t stride,
                 int64_t rows,
                 int64_t depth,
                 int64_t padded,
                 float* out) {
  ForGroups(rows, [&](int64_t, int64_t first, int64_t count) {
    for (int64_t k = 0; k < padded; ++k) {
      for (int64_t row = first; row < first + count; ++row) {
        *out++ = k < depth ? x[row * stride + k] : 0.0F;
      }
    }
  });
}

void PackBFloat16(const float* x,
                  int64_t stride,
                  int64_t rows,
                  int64_t depth,
                  int64_t padded,
                  uint16_t* out) {
  ForGroups(rows, [&](int64_t, int64_t first, int64_t count) {
    for (int64_t k = 0; k < padded; k += 2) {
      for (int64_t row = first; row < first + count; ++row) {
        const float* pair = x + row * stride + k;
        *out++ = k < depth ? FromFloat<BFloat16>(pair[0]).bits : uint16_t{0};
        *out++ =
            k + 1 < depth ? FromFloat<BFloat16>(pair[1]).bits : uint16_t{0};
      }
    }
  });
}

}  // namespace

DecodeKernels MakeDecodeKernels() {
  DecodeKernels kernels{};
  kernels.pack_float32 = PackFloat32;
  kernels.pack_bfloat16 = PackBFloat16;
  kernels.multiply_float32 = Product<Float32Step>;
  kernels.multiply_bfloat16 = Product<BFloat16Step>;
#ifdef __AVX512BF16__
  kernels.multiply_bfloat16_dot = Product<BFloat16DotStep>;
#endif
  AddPanelKernels(&kernels);
  AddRowKernels(&kernels);
  return kernels;
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
