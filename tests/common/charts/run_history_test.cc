#include "common/charts/run_history.h"

#include <cmath>

#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

Json Line(int64_t step, double loss) {
  return {{"step", step},
          {"loss", loss},
          {"terms", {{"entangled_rollout", {{"value", loss / 2}}}}},
          {"adapter_digest", "abc"}};
}

TEST(RunHistoryTest, NumbersAtAnyDepthBecomeColumnsAndTextsDoNot) {
  RunHistory history;
  history.Add(Line(1, 0.5));
  history.Add(Line(2, 0.25));
  const Json json = history.ToJson();
  EXPECT_EQ(json["stride"], 1);
  EXPECT_EQ(json["last_step"], 2);
  EXPECT_EQ(json["steps"], Json({1, 2}));
  EXPECT_EQ(json["series"].size(), 2U);
  EXPECT_EQ(json["series"]["loss"], Json({0.5, 0.25}));
  EXPECT_EQ(json["series"]["terms/entangled_rollout/value"],
            Json({0.25, 0.125}));
  EXPECT_TRUE(json["low"].is_object() && json["low"].empty());
}

TEST(RunHistoryTest, AnEmptyHistoryHasNoSteps) {
  const Json json = RunHistory().ToJson();
  EXPECT_EQ(json["last_step"], 0);
  EXPECT_TRUE(json["steps"].is_array() && json["steps"].empty());
  EXPECT_TRUE(json["series"].is_object() && json["series"].empty());
}

TEST(RunHistoryTest, AColumnThatComesLaterOrIsMissingOnceHasNulls) {
  RunHistory history;
  history.Add({{"step", 1}, {"a", 1.0}});
  history.Add({{"step", 2}, {"b", 2.0}});
  const Json json = history.ToJson();
  EXPECT_EQ(json["series"]["a"], Json({1.0, nullptr}));
  EXPECT_EQ(json["series"]["b"], Json({nullptr, 2.0}));
}

TEST(RunHistoryTest, ThinningKeepsTheMeanAndTheExtremesOfEveryStep) {
  RunHistory history(4);
  for (int step = 1; step <= 10; ++step) {
    history.Add(Line(step, step == 6 ? 100.0 : step));
  }
  const Json json = history.ToJson();
  EXPECT_EQ(json["stride"], 4);
  EXPECT_EQ(json["last_step"], 10);
  EXPECT_EQ(json["steps"], Json({4, 8, 10}));
  EXPECT_EQ(json["series"]["loss"], Json({2.5, 30.0, 9.5}));
  EXPECT_EQ(json["low"]["loss"], Json({1.0, 5.0, 9.0}));
  EXPECT_EQ(json["high"]["loss"], Json({4.0, 100.0, 10.0}));
  EXPECT_FALSE(json["low"].contains("terms/entangled_rollout/value"));
}

TEST(RunHistoryTest, AtMostTwoThousandPointsAreKeptHoweverLongTheRun) {
  RunHistory history;
  double sum = 0.0;
  for (int step = 1; step <= 100'000; ++step) {
    history.Add({{"step", step}, {"loss", step % 7}});
    sum += step % 7;
    if (step == 2000 || step == 2001) {
      EXPECT_EQ(history.ToJson()["stride"], step - 1999);
    }
  }
  const Json json = history.ToJson();
  const size_t points = json["steps"].size();
  EXPECT_LE(points, RunHistory::kMaxPoints);
  EXPECT_GT(points, RunHistory::kMaxPoints / 2);
  EXPECT_EQ(json["stride"], 64);
  // No step is lost: the sum of the points' means times their steps is the sum
  // of all steps.
  double from_points = 0.0;
  int64_t before = 0;
  for (size_t i = 0; i < points; ++i) {
    const auto last = json["steps"][i].get<int64_t>();
    from_points += json["series"]["loss"][i].get<double>() *
                   static_cast<double>(last - before);
    before = last;
  }
  EXPECT_NEAR(from_points, sum, 1e-4 * sum);
}

TEST(RunHistoryTest, AStepThatIsNotNewIsNotTaken) {
  RunHistory history;
  history.Add(Line(3, 1.0));
  history.Add(Line(3, 2.0));
  history.Add(Line(2, 2.0));
  EXPECT_EQ(history.ToJson()["steps"], Json::array({3}));
  EXPECT_EQ(history.ToJson()["series"]["loss"], Json::array({1.0}));
}

TEST(RunHistoryTest, NumbersHaveSevenDigitsAndWhatIsNoNumberIsNull) {
  RunHistory history;
  history.Add(Line(1, 1.0 / 3.0));
  history.Add(Line(2, std::nan("")));
  EXPECT_EQ(history.ToJson()["series"]["loss"].dump(), "[0.3333333,null]");
}

}  // namespace
}  // namespace dapd
