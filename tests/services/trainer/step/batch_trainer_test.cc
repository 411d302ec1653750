#include "services/trainer/step/batch_trainer.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

using BatchTrainerTest = TrainerLoopTest;

TEST_F(BatchTrainerTest, AStepWhoseLossIsNotFiniteEndsTheRun) {
  const TeacherPass anchor{WeightSet::kBase, ViewName::kNoneReference};
  const TeacherPass privileged{WeightSet::kBase, ViewName::kCrossReference};
  loaded_.config.objective.terms = {
      {.name = "beyond_float",
       .student = ViewName::kNoneReference,
       .target = Mixture{.anchor = anchor,
                         .delta = {{privileged, 1.0}},
                         .strength = 1e39},
       .weight = 1.0}};
  const absl::Status status = Run(0);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the loss of step 1 is not finite"));
}

}  // namespace
}  // namespace dapd
