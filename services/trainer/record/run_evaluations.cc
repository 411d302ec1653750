#include "services/trainer/record/run_evaluations.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace dapd {
RunEvaluations::RunEvaluations(std::string run_folder,
                               std::string held_out_digest)
    : run_folder_(std::move(run_folder)),
      held_out_digest_(std::move(held_out_digest)) {}

absl::StatusOr<std::vector<NamedEvaluation>> RunEvaluations::Recall(
    const Config& config, int64_t start_step) {
  ASSIGN_OR_RETURN(std::vector<NamedEvaluation> found,
                   ReadEvaluationReports(run_folder_));
  RETURN_IF_ERROR(RecallBest(found, start_step));
  std::vector<NamedEvaluation> recalled;
  int64_t num_others = 0;
  for (auto& [when, report] : found) {
    if (!Counts(report)) {
      ++num_others;
      continue;
    }
    if (when == "after") {
      if (config.evaluation.interval == 0 ||
          report.policy_version >= config.trainer.steps) {
        continue;
      }
      when = NameWithinRun(report.policy_version);
      // An existing file was written meanwhile.
      if (FileExists(PathOf(when))) continue;
      RETURN_IF_ERROR(Write(when, report));
    }
    if (report.policy_version < start_step) {
      recalled.emplace_back(when, std::move(report));
    }
  }
  if (num_others > 0) {
    LogWarning(absl::StrCat(
        num_others,
        " evaluations of this run are of other held-out problems, or were "
        "asked in another way, than evaluation.* says now; nothing is compared "
        "with them"));
  }
  return recalled;
}

absl::StatusOr<std::optional<EvaluationReport>> RunEvaluations::Find(
    const std::string& when, const std::string& adapter_digest) const {
  std::optional<EvaluationReport> none;
  if (!FileExists(PathOf(when))) return none;
  absl::StatusOr<EvaluationReport> report = ReadEvaluationReport(PathOf(when));
  if (absl::IsDataLoss(report.status())) return none;
  RETURN_IF_ERROR(report.status());
  if (!Counts(*report) || report->adapter_digest != adapter_digest) return none;
  return std::optional(*std::move(report));
}

void RunEvaluations::Add(const std::string& when, EvaluationReport report) {
  report.answers.clear();
  if (report.claims.has_value()) report.claims->answers.clear();
  all_.insert_or_assign(when, std::move(report));
}

absl::Status RunEvaluations::Write(const std::string& when,
                                   const EvaluationReport& report) const {
  return WriteEvaluationReport(PathOf(when), report);
}

std::string RunEvaluations::BestFolder() const {
  return JoinPath(run_folder_, "adapter-best");
}

absl::Status RunEvaluations::WriteBest(const std::string& when) const {
  RETURN_IF_ERROR(MakeDirectories(BestFolder()));
  return WriteEvaluationReport(BestReport(), all_.at(when));
}

std::string RunEvaluations::Best() const {
  const auto is_better = [](const EvaluationReport& a,
                            const EvaluationReport& b) {
    return a.accuracy->mean != b.accuracy->mean
               ? a.accuracy->mean > b.accuracy->mean
               : a.policy_version < b.policy_version;
  };
  std::string best;
  for (const auto& [when, report] : all_) {
    if (when == "before" || !report.accuracy.has_value() ||
        report.policy_version < first_rival_) {
      continue;
    }
    if (best.empty() || is_better(report, all_.at(best))) best = when;
  }
  return best;
}

std::string RunEvaluations::PathOf(const std::string& when) const {
  return JoinPath(run_folder_, absl::StrCat("evaluation/", when, ".json"));
}

std::string RunEvaluations::BestReport() const {
  return JoinPath(BestFolder(), "evaluation.json");
}

absl::Status RunEvaluations::RecallBest(
    const std::vector<NamedEvaluation>& found, int64_t start_step) {
  const std::string folder = BestFolder();
  const bool is_there = FileExists(folder);
  const auto kept = ReadEvaluationReport(BestReport());
  // An older version wrote no evaluation.json into it.
  if (is_there && absl::IsNotFound(kept.status())) return absl::OkStatus();
  const bool is_of_this_run =
      kept.ok() && std::ranges::any_of(found, [&](const auto& each) {
        return each.second.policy_version <= start_step &&
               each.second.adapter_digest == kept->adapter_digest;
      });
  first_rival_ = is_of_this_run ? kept->policy_version : start_step;
  if (!is_there || is_of_this_run) return absl::OkStatus();
  if (!kept.ok() && !absl::IsDataLoss(kept.status())) return kept.status();
  LogWarning(absl::StrCat(
      folder,
      kept.ok()
          ? absl::StrCat(
                " is of step ", kept->policy_version, ", which is done again")
          : absl::StrCat(" is of no known step: ",
                         std::string(kept.status().message())),
      "; it is removed, and the next evaluation begins it anew"));
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  return error ? FileError("remove", folder, error.value()) : absl::OkStatus();
}

bool RunEvaluations::Counts(const EvaluationReport& report) const {
  return MeasureTheSame(report.held_out_digest, held_out_digest_);
}

}  // namespace dapd
