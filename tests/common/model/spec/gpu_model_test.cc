#include "common/model/spec/gpu_model.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using testing::HasSubstr;

absl::Status Check(Precision precision, int64_t head_dim) {
  ModelConfig model;
  model.head_dim = head_dim;
  return CheckGpuModel(precision, model);
}

TEST(GpuModelTest, HeadDimensionsThatAttentionTakes) {
  for (const int64_t head_dim : {8, 64, 80, 96, 128, 256}) {
    EXPECT_TRUE(Check(Precision::kBfloat16, head_dim).ok()) << head_dim;
    EXPECT_TRUE(Check(Precision::kFloat32, head_dim).ok()) << head_dim;
  }
  EXPECT_TRUE(Check(Precision::kFloat32, 12).ok());
  EXPECT_TRUE(Check(Precision::kFloat32, 320).ok());
}

TEST(GpuModelTest, OthersAreRefusedWithWhatIsTaken) {
  for (const int64_t head_dim : {6, 12, 100, 264}) {
    const absl::Status refused = Check(Precision::kBfloat16, head_dim);
    EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfig);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("multiples of 8 and at most 256 in bfloat16, but the "
                          "model's is " +
                          std::to_string(head_dim)));
  }
  EXPECT_THAT(std::string(Check(Precision::kFloat32, 6).message()),
              HasSubstr("multiples of 4 in float32, but the model's is 6"));
}

}  // namespace
}  // namespace dapd
