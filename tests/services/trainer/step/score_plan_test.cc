#include "services/trainer/step/score_plan.h"

#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr ViewName kNone = ViewName::kNoneRollout;
constexpr ViewName kCross = ViewName::kCrossRollout;

// Returns the views of each task, by teacher and set of weights.
std::map<ScoreSource, std::set<ViewName>> TasksOf(
    const ScorePlan& plan, const std::string& row_teacher) {
  std::map<ScoreSource, std::set<ViewName>> views;
  for (const ScoreTask& task :
       plan.Tasks(/*known_at_start=*/false, row_teacher)) {
    for (const auto& [name, view] : task.views) {
      views[{task.teacher, task.weights}].insert(name);
    }
  }
  return views;
}

TEST(ScorePlanTest, EachTeacherGetsTheViewsThatItReads) {
  const ScorePlan plan = {
      .questions = {.passes = {{WeightSet::kBase, kNone},
                               {WeightSet::kSnapshot, kCross},
                               {WeightSet::kBase, kNone, "big"},
                               {WeightSet::kBase, kCross, "big"},
                               {WeightSet::kBase, kCross, "small"}}},
      .at_base = {WeightSet::kSnapshot}};
  EXPECT_EQ(TasksOf(plan, ""),
            (std::map<ScoreSource, std::set<ViewName>>{
                {{"", WeightSet::kBase}, {kNone, kCross}},
                {{"big", WeightSet::kBase}, {kNone, kCross}},
                {{"small", WeightSet::kBase}, {kCross}}}));
}

TEST(ScorePlanTest, ARowsTeacherIsAskedForItsRow) {
  const ScorePlan plan = {
      .questions = {.passes = {{WeightSet::kBase, kNone, kRowTeacher},
                               {WeightSet::kBase, kCross, "big"}}}};
  EXPECT_EQ(TasksOf(plan, "big"),
            (std::map<ScoreSource, std::set<ViewName>>{
                {{"big", WeightSet::kBase}, {kNone, kCross}}}));
  EXPECT_EQ(TasksOf(plan, ""),
            (std::map<ScoreSource, std::set<ViewName>>{
                {{"", WeightSet::kBase}, {kNone}},
                {{"big", WeightSet::kBase}, {kCross}}}));
}

}  // namespace
}  // namespace dapd
