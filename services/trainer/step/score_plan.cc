#include "services/trainer/step/score_plan.h"

#include <map>
#include <utility>

namespace dapd {

ScoreSource ScorePlan::SourceOf(const TeacherPass& pass,
                                const std::string& row_teacher) const {
  if (pass.teacher == kRowTeacher) return {.teacher = row_teacher};
  if (!pass.teacher.empty()) return {.teacher = pass.teacher};
  return {.weights =
              at_base.contains(pass.weights) ? WeightSet::kBase : pass.weights};
}

std::vector<ScoreTask> ScorePlan::Tasks(bool known_at_start,
                                        const std::string& row_teacher) const {
  std::map<ScoreSource, ScoreTask> tasks;
  for (const TeacherPass& pass : questions.passes) {
    const bool is_known =
        !NeedsRollout(pass.view) && source == ReferenceSource::kGiven;
    if (is_known != known_at_start) continue;
    tasks[SourceOf(pass, row_teacher)].views[pass.view];  // once per view
  }
  std::vector<ScoreTask> plan;
  for (auto& [source, task] : tasks) {
    task.teacher = source.teacher;
    task.weights = source.weights;
    task.payload = questions.payload;
    task.top_k = questions.top_k;
    task.temperature = questions.temperature;
    plan.push_back(std::move(task));
  }
  return plan;
}

std::vector<ScoreTask> ScorePlan::Tellable(std::vector<ScoreTask> tasks) const {
  for (ScoreTask& task : tasks) {
    std::erase_if(task.views, [this](const auto& named) {
      if (named.first == ViewName::kSiblingRollout) return true;
      // The view shows or scores a reference that is itself still sampled.
      return source != ReferenceSource::kGiven &&
             (named.first == ViewName::kCrossRollout ||
              named.first == ViewName::kDemonstrationRollout ||
              named.first == ViewName::kProbeRollout ||
              !NeedsRollout(named.first));
    });
  }
  std::erase_if(tasks,
                [](const ScoreTask& task) { return task.views.empty(); });
  return tasks;
}

}  // namespace dapd
