#include "common/grader/grading_desk.h"

#include <map>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// A grader whose answers are programs for it.
GraderSection Obedient(int64_t workers = 1) {
  return {.command = {"python3", "-c", R"(
import json, os, sys, time
for line in sys.stdin:
    q = json.loads(line)
    exec(q["answer"])
    print(json.dumps({"id": q["id"], "score": float(q["problem"])}), flush=True)
)"},
          .workers = workers};
}

TEST(GradingDeskTest, ResultsComeByTheirTickets) {
  auto desk = GradingDesk::Open(Obedient(/*workers=*/3)).value();
  std::map<uint64_t, double> scores;
  for (int i = 0; i < 20; ++i) {
    const double score = i / 20.0;
    scores[desk->Submit({.problem = absl::StrCat(score)})] = score;
  }
  while (!scores.empty()) {
    const auto graded = desk->NextWithin(kPatience).value();
    ASSERT_TRUE(graded.has_value());
    EXPECT_DOUBLE_EQ(graded->result.score, scores.at(graded->ticket));
    scores.erase(graded->ticket);
  }
  EXPECT_EQ(desk->NextWithin(absl::ZeroDuration()).value(), std::nullopt);
}

TEST(GradingDeskTest, ASlowAnswerHoldsUpNoOther) {
  auto desk = GradingDesk::Open(Obedient(/*workers=*/2)).value();
  const uint64_t slow =
      desk->Submit({.problem = "0", .answer = "time.sleep(600)"});
  for (int i = 0; i < 5; ++i) {
    desk->Submit({.problem = "1"});
    const auto graded = desk->NextWithin(kPatience).value();
    ASSERT_TRUE(graded.has_value());
    EXPECT_NE(graded->ticket, slow);
  }
  // Its end does not wait for the slow answer.
  const absl::Time start = SteadyNow();
  desk.reset();
  EXPECT_LT(SteadyNow() - start, absl::Seconds(30));
}

TEST(GradingDeskTest, ObserversSeeEveryResult) {
  Mutex mutex;
  int graded = 0;
  std::set<Ungraded> ungraded;
  GraderSection options = Obedient();
  auto desk =
      GradingDesk::Open(options,
                        {.on_result =
                             [&](const GraderResult& result, double seconds) {
                               MutexLock lock(&mutex);
                               EXPECT_GE(seconds, 0.0);
                               if (result.ungraded.has_value()) {
                                 ungraded.insert(*result.ungraded);
                               } else {
                                 ++graded;
                               }
                             }})
          .value();
  desk->Submit({.problem = "1"});
  desk->Submit({.problem_id = "bad", .problem = "1", .answer = "os._exit(1)"});
  ASSERT_TRUE(desk->NextWithin(kPatience).value().has_value());
  const auto second = desk->NextWithin(kPatience).value();
  ASSERT_TRUE(second.has_value());
  EXPECT_THAT(second->result.error,
              HasSubstr("problem 'bad' could not be graded (ended): "));
  MutexLock lock(&mutex);
  EXPECT_EQ(graded, 1);
  EXPECT_EQ(ungraded, std::set{Ungraded::kEnded});
}

TEST(GradingDeskTest, AnUngradedAnswerEndsTheRunIfItIsToFail) {
  GraderSection options = Obedient();
  options.on_error = OnUngraded::kFail;
  auto desk = GradingDesk::Open(options).value();
  desk->Submit({.problem = "1", .answer = "os._exit(1)"});
  const auto graded = desk->NextWithin(kPatience);
  EXPECT_TRUE(absl::IsUnavailable(graded.status())) << graded.status();
  EXPECT_THAT(graded.status().message(), HasSubstr("grader.on_error"));
}

TEST(GradingDeskTest, AForgottenAnswerHasNoResult) {
  auto desk = GradingDesk::Open(Obedient()).value();
  const uint64_t old = desk->Submit({.problem = "0"});
  desk->Submit({.problem = "0"});
  desk->Forget();
  const uint64_t fresh = desk->Submit({.problem = "1"});
  EXPECT_GT(fresh, old);
  const auto graded = desk->NextWithin(kPatience).value();
  ASSERT_TRUE(graded.has_value());
  EXPECT_EQ(graded->ticket, fresh);
}

TEST(GradingDeskTest, AShutdownEndsTheWait) {
  auto desk = GradingDesk::Open(Obedient()).value();
  desk->Submit({.problem = "1", .answer = "time.sleep(600)"});
  std::jthread stopper([&] { desk->Shutdown(); });
  EXPECT_TRUE(absl::IsCancelled(desk->NextWithin(kPatience).status()));
}

TEST(GradingDeskTest, AMissingProgramIsFoundAtTheStart) {
  EXPECT_EQ(
      ExitCodeOf(GradingDesk::Open({.command = {"no-such-program"}}).status()),
      ExitCode::kConfig);
}

}  // namespace
}  // namespace dapd
