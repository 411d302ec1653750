#include "common/kernels/packed_gemm.h"

#include <algorithm>
#include <vector>

#include "common/kernels/bfloat16.h"
#include "common/kernels/cpu_level_tables.h"
#include "common/kernels/packed_gemm_cpu_levels.h"
#include "common/kernels/parallel_for.h"

namespace dapd {
namespace {

const PackedGemmKernel& Kernel() {
  static CpuLevelTables<PackedGemmKernel> tables({
    .baseline = baseline::MakePackedGemmKernel,
#if defined(__x86_64__)
    .avx2 = avx2::MakePackedGemmKernel, .avx512 = avx512::MakePackedGemmKernel,
    .avx512_bf16 = avx512_bf16::MakePackedGemmKernel,
    .amx = amx::MakePackedGemmKernel,
#endif
  });
  static const PackedGemmKernel& kernel = tables.Of(CpuLevelInUse());
  return kernel;
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns where part `index` of `parts` begins, in whole tiles.
int64_t PartBegin(int64_t size, int64_t tile, int64_t parts, int64_t index) {
  return std::min(size, CeilDivide(size, tile) * index / parts * tile);
}

// Divides C into parts that are computed separately.
class GemmParts {
 public:
  // Makes at most `count` parts with the least repeated packing: a part packs
  // its rows of A and its columns of B.
  GemmParts(const GemmOperands& operands, int64_t count)
      : operands_(operands), kernel_(Kernel()) {
    const int64_t row_tiles = CeilDivide(operands.m, kernel_.tile_rows);
    const int64_t column_tiles = CeilDivide(operands.n, kernel_.tile_columns);
    int64_t least = 0;
    for (int64_t divisor = 1; divisor <= count; ++divisor) {
      if (count % divisor != 0) continue;
      const int64_t rows = std::min(divisor, row_tiles);
      const int64_t columns = std::min(count / divisor, column_tiles);
      const int64_t packed = operands.m * columns + operands.n * rows;
      const int64_t more = rows * columns - size();
      if (more > 0 || (more == 0 && packed < least)) {
        row_parts_ = rows;
        column_parts_ = columns;
        least = packed;
      }
    }
  }

  int64_t size() const { return row_parts_ * column_parts_; }

  void Run(int64_t part) const {
    const int64_t row = part / column_parts_;
    const int64_t column = part % column_parts_;
    const auto row_at = [&](int64_t index) {
      return PartBegin(operands_.m, kernel_.tile_rows, row_parts_, index);
    };
    const auto column_at = [&](int64_t index) {
      return PartBegin(operands_.n, kernel_.tile_columns, column_parts_, index);
    };
    kernel_.run(operands_,
                row_at(row),
                row_at(row + 1),
                column_at(column),
                column_at(column + 1));
  }

 private:
  const GemmOperands& operands_;
  const PackedGemmKernel& kernel_;
  int64_t row_parts_ = 0;
  int64_t column_parts_ = 0;
};

// Rounds the float32 numbers in `sums` and writes them to c, or adds them.
void RoundInto(const GemmOperands& operands,
               const std::vector<float>& sums,
               int num_threads) {
  ParallelFor(num_threads, operands.m, [&](int64_t row) {
    const float* from = sums.data() + row * operands.n;
    BFloat16* to = static_cast<BFloat16*>(operands.c) + row * operands.c_stride;
    for (int64_t j = 0; j < operands.n; ++j) {
      const float old = operands.adds ? ToFloat(to[j]) : 0.0F;
      to[j] = FromFloat<BFloat16>(old + from[j]);
    }
  });
}

}  // namespace

void PackedGemm(const GemmOperands& operands, int num_threads) {
  const auto m = static_cast<double>(operands.m);
  const auto n = static_cast<double>(operands.n);
  const auto k = static_cast<double>(operands.k);
  num_threads = ThreadsWorth(
      num_threads,
      ProductNanoseconds(m * n * k, sizeof(float) * (m * k + k * n + m * n)));
  if (operands.c_is_bfloat16 && operands.k > kGemmWholeDepth) {
    std::vector<float> sums(static_cast<size_t>(operands.m * operands.n));
    GemmOperands wide = operands;
    wide.c = sums.data();
    wide.c_stride = operands.n;
    wide.c_is_bfloat16 = wide.adds = false;
    PackedGemm(wide, num_threads);
    RoundInto(operands, sums, num_threads);
    return;
  }
  // With many columns several parts per thread cost little, and a thread that
  // was interrupted leaves its share to the others.
  const bool is_wide = operands.n >= 32 * operands.m;
  const GemmParts parts(operands, is_wide ? 4 * num_threads : num_threads);
  ParallelFor(num_threads, parts.size(), [&](int64_t i) { parts.Run(i); });
}

}  // namespace dapd
