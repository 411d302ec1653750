#include "services/cli/objective_text.h"

#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/config/config_keys.h"
#include "common/config/preset_terms.h"
#include "common/config/step_kind.h"

namespace dapd {
namespace {

// Returns how the term differs from a forward KL over the vocabulary.
std::string DescribeSpecial(const Term& term) {
  std::string text;
  if (term.divergence.kind != DivergenceKind::kForwardKl) {
    absl::StrAppend(&text, ", ", NameOf(term.divergence.kind));
  }
  if (term.divergence.kind == DivergenceKind::kJensenShannon &&
      term.divergence.beta != Divergence().beta) {
    absl::StrAppend(&text, " with beta ", term.divergence.beta);
  }
  if (term.support.kind != SupportKind::kFull) {
    absl::StrAppend(&text,
                    ", ",
                    NameOf(term.support.kind),
                    " ",
                    term.support.k,
                    term.support.tail ? " with tail" : "");
  }
  if (term.reduction != Reduction::kMicroToken) {
    absl::StrAppend(&text, ", ", NameOf(term.reduction));
  }
  if (term.skip_tokens > 0) {
    absl::StrAppend(&text, ", without the first ", term.skip_tokens, " tokens");
  }
  if (term.importance != Importance::kNone) {
    absl::StrAppend(&text,
                    ", importance by ",
                    NameOf(term.importance),
                    " to ",
                    term.importance_cap);
  }
  return text;
}

std::string DescribeReference(const RolloutSection& rollout) {
  if (rollout.source == ReferenceSource::kDual) return "a second answer";
  if (rollout.source == ReferenceSource::kVerified) {
    return rollout.unverified == Unverified::kSkip
               ? "the first correct answer of four further answers, or none"
               : "the first correct answer of four further answers, or the "
                 "first";
  }
  return "the data's solution";
}

}  // namespace

std::vector<std::string> PresetText(const LoadedConfig& loaded) {
  std::vector<std::string> lines;
  const std::string& preset = loaded.config.objective.preset;
  std::string line = absl::StrFormat("%-16s %s", "preset", preset);
  if (!loaded.config.objective.terms.empty()) {
    absl::StrAppend(&line, "; objective.terms replace its terms");
  }
  lines.push_back(line);
  Config config = loaded.config;
  for (const ConfigKey& key : ConfigKeys(config)) {
    if (loaded.origins.at(key.name) != "preset") continue;
    lines.push_back(absl::StrFormat("  %s: %s", key.name, FormatValue(key)));
  }
  if (!AsksRolloutWorkers(config)) {
    lines.push_back("  no rollout workers are needed");
  }
  if (!AsksTeachers(config)) {
    lines.push_back(
        TeachersAsked(config).empty()
            ? "  no teachers are needed"
            : "  no teachers of the student's own model are needed");
  }
  for (const TeacherModel& teacher : TeachersAsked(config)) {
    lines.push_back(
        absl::StrCat("  teacher ",
                     teacher.name,
                     ": ",
                     teacher.path,
                     teacher.adapter.empty() ? "" : " with the adapter ",
                     teacher.adapter));
  }
  return lines;
}

std::string AnswersOfStepText(const Config& config) {
  std::string line =
      absl::StrFormat("%-16s %d of %d problems a step; reference: %s",
                      "answers",
                      config.rollout.group_size,
                      config.trainer.batch_size / config.rollout.group_size,
                      DescribeReference(config.rollout));
  if (TakesTurns(config)) {
    absl::StrAppendFormat(
        &line,
        "; %g %% of the steps train the references and sample nothing",
        100.0 * ShareOfSteps(config, Completion::kReference));
  }
  return line;
}

std::string RowTeachersText(const Dataset& data) {
  std::map<std::string, int64_t> rows;
  for (const Problem& problem : data.problems) {
    ++rows[problem.teacher.empty() ? NameOf(WeightSet::kBase)
                                   : problem.teacher];
  }
  return absl::StrFormat(
      "%-16s %s",
      "rows' teachers",
      absl::StrJoin(rows, ", ", [](std::string* out, const auto& of_teacher) {
        absl::StrAppend(out, of_teacher.first, " ", of_teacher.second);
      }));
}

std::vector<std::string> TermsText(const ObjectiveSection& objective) {
  std::vector<std::string> lines = {
      "terms            student <- target (weights), clip, weight"};
  double sum = 0.0;
  for (const Term& term : ExpandTerms(objective)) {
    lines.push_back(absl::StrFormat("  %-21s %s <- %s, %g, %.6g%s",
                                    term.name,
                                    ViewNameString(term.student),
                                    Describe(term.target),
                                    term.divergence.clip,
                                    term.weight,
                                    DescribeSpecial(term)));
    sum += term.weight;
  }
  lines.push_back(absl::StrFormat("  sum of weights      %.6g", sum));
  return lines;
}

}  // namespace dapd
