#include "services/cli/local_teachers.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/model/spec/layer_recipe.h"
#include "common/objective/score_locally.h"

namespace dapd {

absl::StatusOr<LocalTeachers> LocalTeachers::Load(
    const FurtherTeachers& teachers, const ModelWeights& student) {
  LocalTeachers local;
  local.vocabulary_ = CommonVocabulary(student.config.vocab_size, teachers);
  local.max_view_ = CommonPositions(student.config.max_positions, teachers);
  for (const FurtherTeacher& teacher : teachers) {
    ASSIGN_OR_RETURN(
        std::shared_ptr<const ModelWeights> weights,
        LoadModelWeights(teacher.folder, student.dtype(), student.device()));
    std::optional<Adapter> adapter;
    if (!teacher.adapter.empty()) {
      ASSIGN_OR_RETURN(
          adapter,
          ReadAdapter(teacher.adapter, weights->config, weights->device()));
    }
    LmHead head(weights->head, ModelRecipeOf(weights->config).logit_softcap);
    local.teachers_.emplace(
        teacher.name(),
        Teacher{std::move(weights), std::move(adapter), std::move(head)});
  }
  return local;
}

absl::StatusOr<std::map<TeacherPass, TeacherScores>> LocalTeachers::Score(
    const ModelWeights& student,
    const Policy& policy,
    const std::vector<TeacherPass>& passes,
    const std::string& row_teacher,
    const Views& views) const {
  const bool is_base =
      row_teacher.empty() || row_teacher == NameOf(WeightSet::kBase);
  std::map<std::string, std::vector<TeacherPass>> by_teacher;
  for (const TeacherPass& pass : passes) {
    if (pass.teacher != kRowTeacher) {
      by_teacher[pass.teacher].push_back(pass);
      continue;
    }
    if (!is_base && !teachers_.contains(row_teacher)) {
      return DataError(absl::StrCat("a sample names the teacher '",
                                    Printable(row_teacher),
                                    "', which `teachers` does not have"));
    }
    by_teacher[is_base ? "" : row_teacher].push_back(pass);
  }
  std::map<TeacherPass, TeacherScores> scores;
  for (const auto& [name, own] : by_teacher) {
    if (name.empty()) {
      scores.merge(ScoreLocally(student, policy.WeightSets(), own, views));
      continue;
    }
    const Teacher& teacher = teachers_.at(name);
    const Adapter* const adapter =
        teacher.adapter.has_value() ? &*teacher.adapter : nullptr;
    auto of_teacher = ScoreLocally(
        *teacher.weights, {{WeightSet::kBase, adapter}}, own, views);
    for (auto& [pass, score] : of_teacher) score.head = &teacher.head;
    scores.merge(std::move(of_teacher));
  }
  return scores;
}

}  // namespace dapd
