// Compares the product of few rows on a GPU, at the shapes of Qwen3-4B, with
// float64 on the same GPU. Skips itself without a GPU or without our kernels.

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/gpus/cuda_backend.h"
#include "common/kernels/cuda/bulk_product.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/skinny_product.h"
#include "common/model/weights/placement.h"

namespace dapd {
namespace {

struct ProductShape {
  int64_t rows, inner, cols;
  bool is_bulk = false;  // by the form of bulk_product.h
};

void PrintTo(const ProductShape& shape, std::ostream* out) {
  *out << shape.rows << "x" << shape.inner << "x" << shape.cols
       << (shape.is_bulk ? "bulk" : "");
}

class CudaProductParityTest : public testing::TestWithParam<ProductShape> {
 protected:
  void SetUp() override {
    const auto device = DeviceOf(DeviceChoice::kCuda);
    if (!device.ok()) {
      GTEST_SKIP() << "no CUDA device: " << device.status().message();
    }
    SetUpCuda(/*deterministic=*/false, at::globalContext());
    auto* const has_bulk = reinterpret_cast<decltype(&DapdCudaHasBulkProducts)>(
        CudaSymbol("DapdCudaHasBulkProducts"));
    if (has_bulk == nullptr) {
      GTEST_SKIP() << "libdapd_cuda.so was built without nvcc";
    }
    // Like a decoder, it takes the first form on a device without the second.
    is_bulk_ = GetParam().is_bulk && has_bulk() != 0;
    multiply_ = reinterpret_cast<decltype(multiply_)>(
        CudaSymbol(is_bulk_ ? "DapdCudaBulkProduct" : "DapdCudaSkinnyProduct"));
  }

  // Returns x w^T in float32.
  at::Tensor Multiply(const at::Tensor& x, const at::Tensor& w) const {
    at::Tensor y =
        at::empty({x.size(0), w.size(0)}, x.options().dtype(at::kFloat));
    MultiplyInto(y, x, w, 0);
    return y;
  }
  // Writes y [rows, cols] in float32 or bfloat16.
  void MultiplyInto(const at::Tensor& y,
                    const at::Tensor& x,
                    const at::Tensor& w,
                    int64_t early,
                    decltype(&DapdCudaSkinnyProduct) by = nullptr) const {
    const CudaProduct product{.rows = x.size(0),
                              .inner = x.size(1),
                              .cols = w.size(0),
                              .x = x.const_data_ptr(),
                              .x_stride = x.stride(0),
                              .early = early,
                              .w = w.const_data_ptr(),
                              .w_stride = w.stride(0),
                              .y = y.data_ptr(),
                              .y_stride = y.stride(0),
                              .number = CudaNumber::kBFloat16,
                              .float_result = y.scalar_type() == at::kFloat};
    TORCH_CHECK(by == nullptr && is_bulk_ ? IsBulk(product) : IsSkinny(product),
                "a product that the kernel does not take");
    TORCH_CHECK((by != nullptr ? by : multiply_)(&product, nullptr) == 0,
                "was not launched");
  }

 private:
  bool is_bulk_ = false;
  decltype(&DapdCudaSkinnyProduct) multiply_ = nullptr;
};

TEST_P(CudaProductParityTest, IsTheProductInFloat64AndARowsBitsAreItsOwn) {
  const auto& [rows, inner, cols, is_bulk] = GetParam();
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  // The kernel reads weights before it waits for the launch in front, which
  // writes x here.
  const at::Tensor w = at::randn({cols, inner}, options);
  const at::Tensor x = at::randn({rows, inner}, options);
  const at::Tensor y = Multiply(x, w);
  const at::Tensor exact = x.to(at::kDouble).mm(w.to(at::kDouble).t());
  // Tensor cores cut each of 16 products, and the sum so far, to the last place
  // of the largest of them.
  const at::Tensor bound =
      x.abs().to(at::kDouble).mm(w.abs().to(at::kDouble).t()) *
      (static_cast<double>(inner) / 16 * 17 + 18) * 0x1.0p-24;
  const double worst =
      ((y.to(at::kDouble) - exact).abs() / bound).max().item<double>();
  std::cout << "worst error " << worst << " of the bound\n";
  EXPECT_LE(worst, 1.0);
  for (const int64_t some : {int64_t{1}, rows / 2, rows - 1}) {
    if (some < 1) continue;
    const at::Tensor alone = Multiply(x.narrow(0, rows - some, some), w);
    EXPECT_TRUE(alone.equal(y.narrow(0, rows - some, some)))
        << some << " of the rows";
  }
}

// A step works like this: a norm writes x except its last columns, one product
// writes these, and the product of both begins beside the first product.
TEST_P(CudaProductParityTest, WhatIsMultipliedEarlyIsThere) {
  constexpr int64_t kLora = 64;
  constexpr int64_t kSteps = 50;
  const auto& [rows, inner, cols, is_bulk] = GetParam();
  const int64_t early = inner - kLora;
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor w = at::randn({cols, inner}, options);
  const at::Tensor a = at::randn({kLora, early}, options) * 0.05;
  const at::Tensor norm_weight = at::ones({early}, options);
  const at::Tensor residual = at::randn({kSteps, rows, early}, options);
  const at::Tensor x = at::zeros({rows, inner}, options);
  auto* const norm = reinterpret_cast<decltype(&DapdCudaResidualNorm)>(
      CudaSymbol("DapdCudaResidualNorm"));
  auto* const skinny = reinterpret_cast<decltype(&DapdCudaSkinnyProduct)>(
      CudaSymbol("DapdCudaSkinnyProduct"));
  const auto run = [&](int64_t begins) {
    const at::Tensor y =
        at::empty({kSteps, rows, cols}, options.dtype(at::kFloat));
    y.sum().item<float>();  // waits for all launches
    for (int64_t step = 0; step < kSteps; ++step) {
      const ResidualNormArgs args{.num_rows = rows,
                                  .x = residual[step].data_ptr(),
                                  .weight = norm_weight.const_data_ptr(),
                                  .out = x.data_ptr(),
                                  .hidden = early,
                                  .out_stride = inner,
                                  .eps = 1e-6F};
      TORCH_CHECK(norm(&args, CudaNumber::kBFloat16, nullptr) == 0);
      // Its few columns are always the first form's.
      MultiplyInto(
          x.narrow(1, early, kLora), x.narrow(1, 0, early), a, 0, skinny);
      MultiplyInto(y[step], x, w, begins);
    }
    return y;
  };
  const at::Tensor expected = run(0);
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_TRUE(run(early).equal(expected));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Qwen3,
    CudaProductParityTest,
    testing::Values(ProductShape{32, 2560 + 192, 6144},  // q, k and v
                    ProductShape{32, 2560, 192},         // their adapter's A
                    ProductShape{4, 4096 + 64, 2560},    // o
                    ProductShape{13, 2560, 19456},       // gate and up
                    ProductShape{1, 9728, 2560},         // down
                    ProductShape{32, 1032, 5128},        // odd
                    ProductShape{7, 264, 8456},          // two slices
                    ProductShape{9, 72, 40},
                    ProductShape{32, 2560 + 192, 6144, true},
                    ProductShape{4, 4096 + 64, 2560, true},
                    ProductShape{13, 2560, 19456, true},
                    ProductShape{1, 9728, 2560, true},
                    ProductShape{32, 1032, 5128, true},
                    ProductShape{9, 264, 2048, true},
                    ProductShape{7, 264, 151936, true}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace dapd
