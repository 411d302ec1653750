// Matrices of a product on the simulated device, and the exact sums.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/product.h"
#include "tests/fakes/cuda/kernel_inputs.h"

namespace dapd::fake {

// Holds matrices whose rows have gaps behind them, which kernels may not touch.
class ProductMatrices {
 public:
  ProductMatrices(int64_t rows, int64_t inner, int64_t cols)
      : rows_(rows),
        inner_(inner),
        cols_(cols),
        x_("x", RandomNumbers<BFloat16>(rows * (inner + kGap), 1)),
        w_("w", RandomNumbers<BFloat16>(cols * (inner + kGap), 2)),
        y_("y", Elements(rows * (cols + kGap))),
        float_y_("float y", Elements(rows * (cols + kGap))) {
    w_.MarkConstant();
    for (int64_t row = 0; row < rows; ++row) {
      x_.Forbid(row * (inner + kGap) + inner, kGap);
      y_.Forbid(row * (cols + kGap) + cols, kGap);
      float_y_.Forbid(row * (cols + kGap) + cols, kGap);
    }
    for (int64_t col = 0; col < cols; ++col) {
      w_.Forbid(col * (inner + kGap) + inner, kGap);
    }
  }

  // Multiplies rows [first, first + rows).
  CudaProduct Product(int64_t first, int64_t rows, bool float_result) const {
    const int64_t at = first * (cols_ + kGap);
    return {.rows = rows,
            .inner = inner_,
            .cols = cols_,
            .x = x_.data() + first * (inner_ + kGap),
            .x_stride = inner_ + kGap,
            .w = w_.data(),
            .w_stride = inner_ + kGap,
            .y = float_result ? static_cast<void*>(float_y_.data() + at)
                              : static_cast<void*>(y_.data() + at),
            .y_stride = cols_ + kGap,
            .number = CudaNumber::kBFloat16,
            .float_result = float_result};
  }
  // Marks the first columns of x as constant: the launch in front does not
  // write them.
  void MarkEarly(int64_t early) {
    for (int64_t row = 0; row < rows_; ++row) {
      x_.MarkConstant(row * (inner_ + kGap), early);
    }
  }
  std::vector<float> FloatResult() const { return float_y_.Read(); }
  std::vector<BFloat16> Result() const { return y_.Read(); }

  struct Sum {
    int64_t at;  // index in a result
    double value;
    double absolute;  // the sum of absolute values
  };
  std::vector<Sum> Sums() const {
    const std::vector<BFloat16> x = x_.Read();
    const std::vector<BFloat16> w = w_.Read();
    std::vector<Sum> sums;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        Sum sum{.at = row * (cols_ + kGap) + col, .value = 0, .absolute = 0};
        for (int64_t i = 0; i < inner_; ++i) {
          const double product =
              static_cast<double>(ToFloat(x[row * (inner_ + kGap) + i])) *
              static_cast<double>(ToFloat(w[col * (inner_ + kGap) + i]));
          sum.value += product;
          sum.absolute += std::abs(product);
        }
        sums.push_back(sum);
      }
    }
    return sums;
  }

 private:
  static constexpr int64_t kGap = 8;

  int64_t rows_, inner_, cols_;
  DeviceBuffer<BFloat16> x_;
  DeviceBuffer<BFloat16> w_;
  DeviceBuffer<BFloat16> y_;
  DeviceBuffer<float> float_y_;
};

}  // namespace dapd::fake
