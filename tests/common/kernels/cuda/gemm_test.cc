// Tests which algorithms products take from a cuBLASLt that the host simulates.

#include "common/kernels/cuda/gemm.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/cuda/pass_product.h"
#include "tests/fakes/cublas_lt_on_host.h"

namespace dapd {
namespace {

using fake::LibraryProduct;

constexpr int64_t kOutputs = 2560;

CudaProduct ProductOf(int64_t rows, int64_t inner) {
  return {.rows = rows,
          .inner = inner,
          .cols = kOutputs,
          .x_stride = inner,
          .w_stride = inner,
          .y_stride = kOutputs,
          .number = CudaNumber::kBFloat16};
}

class CudaGemmOnHostTest : public testing::Test {
 protected:
  ~CudaGemmOnHostTest() override {
    fake::SetCublasLt({});
    fake::TakeLibraryProducts();
  }

  // Returns the number of parts into which the sum of a step's product is cut.
  int32_t PartsOf(int64_t inner) {
    EXPECT_EQ(gemm_.Multiply(ProductOf(64, inner), /*stream=*/nullptr), "");
    return fake::TakeLibraryProducts().at(0).parts;
  }

  char workspace_ = 0;  // no call reads it
  CudaGemm gemm_{&workspace_};
};

TEST_F(CudaGemmOnHostTest, ASumKeepsWhatItHasBeyondWholeSteps) {
  fake::SetCublasLt({.parts = 16});
  EXPECT_EQ(PartsOf(4096), 16);
  EXPECT_EQ(PartsOf(4096 + 8), 1);
  EXPECT_EQ(PartsOf(4096 + 16), 16);
  EXPECT_EQ(PartsOf(4096 + 64), 16);
  fake::SetCublasLt({.parts = 8});
  EXPECT_EQ(PartsOf(4096 + 8), 8);
}

TEST_F(CudaGemmOnHostTest, APassHasTheAlgorithmOfAWholeOneWithoutParts) {
  constexpr int64_t kWhole = 4096;
  fake::SetCublasLt({.parts = 4, .row_step = 256});
  char error[kCudaErrorBytes] = "";
  for (const int64_t rows : {int64_t{256}, int64_t{1280}, kWhole}) {
    const CudaProduct product = ProductOf(rows, kOutputs);
    EXPECT_TRUE(DapdCudaPassProductFits(&product, kWhole)) << rows;
    EXPECT_EQ(DapdCudaPassProduct(&product, kWhole, /*stream=*/nullptr, error),
              0)
        << error;
    EXPECT_EQ(fake::TakeLibraryProducts(),
              std::vector<LibraryProduct>({{.rows = rows,
                                            .inner = kOutputs,
                                            .cols = kOutputs,
                                            .parts = 1,
                                            .chosen_for = kWhole}}));
  }
  const CudaProduct odd = ProductOf(128, kOutputs);
  EXPECT_FALSE(DapdCudaPassProductFits(&odd, kWhole));
  EXPECT_NE(DapdCudaPassProduct(&odd, kWhole, /*stream=*/nullptr, error), 0);
  const CudaProduct narrow = ProductOf(256, 2564);  // 320.5 * 16 bytes a row
  EXPECT_FALSE(DapdCudaPassProductFits(&narrow, kWhole));
}

}  // namespace
}  // namespace dapd
