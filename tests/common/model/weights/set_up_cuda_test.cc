// Tests how LibTorch is told to compute on a GPU; LibTorch accepts some
// settings only if it has CUDA.

#include "gtest/gtest.h"

#include "common/model/weights/placement.h"

namespace dapd {
namespace {

TEST(SetUpCudaTest, AttentionIsNotPlannedAndSumsStayInFloat32) {
  at::Context context;
  SetUpCuda(/*deterministic=*/false, context);
  EXPECT_FALSE(context.userEnabledCuDNNSDP());
  EXPECT_EQ(context.allowBF16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  EXPECT_FALSE(context.deterministicAlgorithms());
}

TEST(SetUpCudaTest, DeterministicProductsAreNotSplitAndAttentionAddsInOrder) {
  at::Context context;
  SetUpCuda(/*deterministic=*/true, context);
  EXPECT_FALSE(context.userEnabledCuDNNSDP());
  EXPECT_EQ(context.allowBF16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK);
  EXPECT_EQ(context.blasPreferredBackend(), at::BlasBackend::Cublaslt);
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
}

}  // namespace
}  // namespace dapd
