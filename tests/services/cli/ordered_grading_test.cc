#include "services/cli/ordered_grading.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

// The first answer takes longest, so the others overtake it.
GraderSection Grader() {
  return {.command = {"python3", "-c", R"(
import json, sys, time
for line in sys.stdin:
    q = json.loads(line)
    if q["answer"] == "0": time.sleep(0.3)
    if q["answer"] == "dies": sys.exit(1)
    print(json.dumps({"id": q["id"], "correct": True}), flush=True)
)"},
          .workers = 3};
}

TEST(OrderedGradingTest, ResultsComeInTheOrderOfTheAnswers) {
  const auto grading = OrderedGrading::Open(Grader()).value();
  std::vector<int> done;
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(grading
                    ->Add({.answer = absl::StrCat(i)},
                          [&done, i](const GraderResult& result) {
                            EXPECT_TRUE(result.correct);
                            done.push_back(i);
                            return absl::OkStatus();
                          })
                    .ok());
    // Four for each worker wait at most.
    EXPECT_LE(i + 1 - static_cast<int>(done.size()), 12);
  }
  ASSERT_TRUE(grading->Finish().ok());
  ASSERT_EQ(done.size(), 30);
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

TEST(OrderedGradingTest, UngradedAnswersAreCounted) {
  const auto grading = OrderedGrading::Open(Grader()).value();
  for (const std::string answer : {"1", "dies", "2"}) {
    ASSERT_TRUE(grading
                    ->Add({.answer = answer},
                          [&](const GraderResult& result) {
                            EXPECT_EQ(result.correct, answer != "dies");
                            return absl::OkStatus();
                          })
                    .ok());
    ASSERT_TRUE(grading->Finish().ok());
  }
  EXPECT_EQ(grading->ungraded(), 1);
}

TEST(OrderedGradingTest, AnErrorOfAFunctionEndsIt) {
  const auto grading = OrderedGrading::Open(Grader()).value();
  const auto fails = [](const GraderResult&) {
    return absl::DataLossError("full");
  };
  absl::Status status = grading->Add({.answer = "1"}, fails);
  if (status.ok()) status = grading->Finish();
  EXPECT_EQ(status, absl::DataLossError("full"));
}

}  // namespace
}  // namespace dapd
