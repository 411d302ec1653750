#include "services/trainer/record/run_evaluations.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunEvaluationsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(folder_ + "/evaluation").ok());
    config_.trainer.steps = 8;
    config_.evaluation.interval = 2;
  }
  EvaluationReport Report(int64_t step,
                          double accuracy,
                          const std::string& held_out = "these") const {
    return {.policy_version = step,
            .adapter_digest = absl::StrCat("of ", step),
            .held_out_digest = held_out,
            .accuracy = Interval{accuracy, accuracy, accuracy}};
  }
  void Write(const std::string& when, const EvaluationReport& report) {
    ASSERT_TRUE(evaluations_.Write(when, report).ok());
  }
  // Writes adapter-best/ as an earlier attempt would.
  void KeepBest(const EvaluationReport& report) {
    RunEvaluations earlier(folder_, report.held_out_digest);
    earlier.Add("best", report);
    ASSERT_TRUE(earlier.WriteBest("best").ok());
  }
  // Returns the names once all evaluations are added.
  std::vector<std::string> Recall(int64_t start_step) {
    const auto recalled = evaluations_.Recall(config_, start_step);
    EXPECT_TRUE(recalled.ok()) << recalled.status();
    std::vector<std::string> names;
    for (const auto& [when, report] : *recalled) {
      names.push_back(when);
      evaluations_.Add(when, report);
    }
    return names;
  }
  bool Finds(const std::string& when, const std::string& adapter_digest) {
    const auto found = evaluations_.Find(when, adapter_digest);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && found->has_value();
  }

  const std::string folder_ = TempPath("run");
  Config config_;
  RunEvaluations evaluations_{folder_, "these"};
};

TEST_F(RunEvaluationsTest, ALaterOneCountsOnceItsAdapterIsReachedAgain) {
  Write("before", Report(0, 0.5));
  Write("step-000002", Report(2, 0.25));
  Write("step-000004", Report(4, 0.75));
  Write("step-000006", Report(6, 1.0));
  KeepBest(Report(2, 0.25));
  EXPECT_THAT(Recall(4), ElementsAre("before", "step-000002"));
  EXPECT_EQ(evaluations_.Best(), "step-000002");
  EXPECT_TRUE(Finds("step-000004", "of 4"));
  EXPECT_FALSE(Finds("step-000006", "of other bits"));
  EXPECT_FALSE(Finds("step-000008", "of 8"));
}

TEST_F(RunEvaluationsTest, TheMostAccurateAdapterOfThoseTrainedIsTheBest) {
  EXPECT_EQ(evaluations_.Best(), "");
  evaluations_.Add("before", Report(0, 1.0));
  evaluations_.Add("step-000001", {.policy_version = 1});
  EXPECT_EQ(evaluations_.Best(), "");
  evaluations_.Add("step-000002", Report(2, 0.25));
  evaluations_.Add("step-000004", Report(4, 0.75));
  evaluations_.Add("step-000006", Report(6, 0.5));
  EXPECT_EQ(evaluations_.Best(), "step-000004");
}

TEST_F(RunEvaluationsTest, OfEquallyAccurateAdaptersTheFirstIsTheBest) {
  for (const int64_t step : {4, 2, 6}) {
    evaluations_.Add(NameWithinRun(step), Report(step, 0.5));
  }
  EXPECT_EQ(evaluations_.Best(), "step-000002");
  evaluations_.Add("after", Report(8, 0.5));
  EXPECT_EQ(evaluations_.Best(), "step-000002");
}

// Its adapter belongs to a lost attempt and has replaced the best adapter
// before.
TEST_F(RunEvaluationsTest, ABestStepThatIsDoneAgainGivesWayToTheNextOne) {
  Write("step-000002", Report(2, 0.75));
  Write("step-000006", Report(6, 1.0));
  KeepBest(Report(6, 1.0));
  testing::internal::CaptureStderr();
  EXPECT_THAT(Recall(4), ElementsAre("step-000002"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("adapter-best is of step 6, which is done again"));
  EXPECT_FALSE(FileExists(folder_ + "/adapter-best"));
  for (int attempt = 0; attempt < 2; ++attempt) {
    evaluations_ = RunEvaluations(folder_, "these");
    Recall(4);
    EXPECT_EQ(evaluations_.Best(), "");
  }
  EvaluationReport redone = Report(6, 0.5);
  redone.adapter_digest = "of other bits";
  evaluations_.Add("step-000006", redone);
  EXPECT_EQ(evaluations_.Best(), "step-000006");
}

// If the folder counted as empty, the best adapter would be removed, because no
// known evaluation has it.
TEST_F(RunEvaluationsTest, AFolderThatCannotBeListedIsNotTakenForAnEmptyOne) {
  KeepBest(Report(2, 0.5));
  const std::string evaluations = JoinPath(folder_, "evaluation");
  std::filesystem::remove_all(evaluations);
  ASSERT_TRUE(WriteFileAtomically(evaluations, "no folder").ok());
  const absl::Status status = evaluations_.Recall(config_, 4).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(evaluations));
  EXPECT_TRUE(FileExists(evaluations_.BestFolder()));
}

TEST_F(RunEvaluationsTest, TheBestIsNoneWhoseAdapterWasReplaced) {
  Write("step-000002", Report(2, 0.75));
  Write("step-000004", Report(4, 0.5));
  KeepBest(Report(4, 0.5));
  EXPECT_THAT(Recall(6), ElementsAre("step-000002", "step-000004"));
  EXPECT_EQ(evaluations_.Best(), "step-000004");
  EXPECT_TRUE(FileExists(folder_ + "/adapter-best"));
}

TEST_F(RunEvaluationsTest, ABestAdapterOfOtherProblemsStaysUntilTheNextOne) {
  Write("step-000002", Report(2, 1.0, "others"));
  KeepBest(Report(2, 1.0, "others"));
  EXPECT_THAT(Recall(4), ElementsAre());
  EXPECT_TRUE(FileExists(folder_ + "/adapter-best"));
  EXPECT_EQ(evaluations_.Best(), "");
}

TEST_F(RunEvaluationsTest, AnOlderRunsBestAdapterIsThatOfItsBestEvaluation) {
  ASSERT_TRUE(MakeDirectories(folder_ + "/adapter-best").ok());
  Write("step-000002", Report(2, 0.75));
  Write("step-000004", Report(4, 0.5));
  Recall(6);
  EXPECT_EQ(evaluations_.Best(), "step-000002");
  EXPECT_TRUE(FileExists(folder_ + "/adapter-best"));
}

TEST_F(RunEvaluationsTest, ARunThatBeginsAnewCountsNone) {
  Write("before", Report(0, 0.5));
  Write("step-000002", Report(2, 0.25));
  EXPECT_THAT(Recall(0), ElementsAre());
  EXPECT_TRUE(Finds("before", "of 0"));
  EXPECT_FALSE(Finds("before", "of another seed"));
}

TEST_F(RunEvaluationsTest, ADamagedOneIsMadeAgain) {
  Write("before", Report(0, 0.5));
  Write("step-000004", Report(4, 0.75));
  for (const char* name : {"step-000002", "step-000006"}) {
    ASSERT_TRUE(WriteFileAtomically(
                    absl::StrCat(folder_, "/evaluation/", name, ".json"), "{")
                    .ok());
  }
  EXPECT_THAT(Recall(6), ElementsAre("before", "step-000004"));
  EXPECT_FALSE(Finds("step-000006", "of 6"));
}

TEST_F(RunEvaluationsTest, ThoseOfOtherProblemsCountForNothing) {
  Write("before", Report(0, 0.0, "others"));
  Write("step-000002", Report(2, 1.0, "others"));
  Write("step-000004", Report(4, 0.5));
  KeepBest(Report(4, 0.5));
  testing::internal::CaptureStderr();
  EXPECT_THAT(Recall(6), ElementsAre("step-000004"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("2 evaluations of this run are of other"));
  EXPECT_EQ(evaluations_.Best(), "step-000004");
  EXPECT_FALSE(Finds("step-000002", "of 2"));
}

TEST_F(RunEvaluationsTest, ThoseOfOlderRunsCount) {
  Write("before", Report(0, 0.5, ""));
  testing::internal::CaptureStderr();
  EXPECT_THAT(Recall(2), ElementsAre("before"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(RunEvaluationsTest, TheEndOfAShorterRunIsWithinTheLongerOne) {
  Write("after", Report(3, 0.75));
  EXPECT_THAT(Recall(3), ElementsAre());
  EXPECT_TRUE(Finds("step-000003", "of 3"));
  // A later evaluation of the same step stays.
  EvaluationReport since = Report(3, 0.25);
  since.adapter_digest = "of other bits";
  Write("step-000003", since);
  EXPECT_THAT(Recall(3), ElementsAre());
  EXPECT_TRUE(Finds("step-000003", "of other bits"));
  // The end of the longer run is written over it.
  Write("after", Report(8, 0.5));
  EXPECT_THAT(Recall(8), ElementsAre("step-000003"));
  EXPECT_FALSE(Finds("step-000008", "of 8"));
}

TEST_F(RunEvaluationsTest, ARunThatEvaluatesAtItsEndsOnlyHasNoneWithin) {
  config_.evaluation.interval = 0;
  Write("after", Report(3, 0.75));
  EXPECT_THAT(Recall(8), ElementsAre());
  EXPECT_FALSE(Finds("step-000003", "of 3"));
}

}  // namespace
}  // namespace dapd
