#include "services/trainer/record/training_card.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/json.h"
#include "common/model/spec/model_card.h"
#include "services/trainer/record/loss_text.h"

namespace dapd {
namespace {

// The evaluation of this adapter, if there is one.
const EvaluationReport* Find(
    const std::map<std::string, EvaluationReport>& evaluations,
    const CardRun& run) {
  for (const auto& [when, report] : evaluations) {
    if (when != "before" && report.policy_version == run.step &&
        (report.adapter_digest.empty() ||
         report.adapter_digest == run.adapter_digest)) {
      return &report;
    }
  }
  return nullptr;
}

const TermDivergence* FindDivergence(const EvaluationReport* report,
                                     const std::string& term) {
  if (report == nullptr) return nullptr;
  for (const TermDivergence& divergence : report->divergences) {
    if (divergence.name == term) return &divergence;
  }
  return nullptr;
}

std::string Share(const Interval* interval) {
  if (interval == nullptr) return "-";
  return absl::StrFormat("%.1f %% \\[%.1f, %.1f\\]",
                         100 * interval->mean,
                         100 * interval->low,
                         100 * interval->high);
}

// Returns the divergence with the number of its problems, which is below the
// number of the shares' problems and may change within a run.
std::string Number(const TermDivergence* divergence) {
  if (divergence == nullptr) return "-";
  const Interval& interval = divergence->unclipped;
  std::string text = absl::StrCat(LossText(interval.mean),
                                  " \\[",
                                  LossText(interval.low),
                                  ", ",
                                  LossText(interval.high),
                                  "\\]");
  if (divergence->problems > 0) {
    absl::StrAppend(&text,
                    ", ",
                    divergence->problems,
                    divergence->problems == 1 ? " problem" : " problems");
  }
  return text;
}

std::string HeldOut(const EvaluationReport* before,
                    const EvaluationReport* now) {
  const EvaluationReport& any = now != nullptr ? *now : *before;
  std::string text = absl::StrFormat(
      "\nHeld out: %d problems, %d answer%s each, 95 %% intervals%s.\n\n"
      "| | before training | this adapter |\n| --- | --- | --- |\n",
      any.problems,
      any.samples,
      any.samples == 1 ? "" : "s",
      any.graded_problems < any.problems
          ? absl::StrCat("; accuracy over the ",
                         any.graded_problems,
                         " with an expected answer")
          : "");
  const auto row = [&](const std::string& name, const auto& cell) {
    absl::StrAppend(
        &text, "| ", name, " | ", cell(before), " | ", cell(now), " |\n");
  };
  row("accuracy", [](const EvaluationReport* report) {
    return Share(report == nullptr || !report->accuracy.has_value()
                     ? nullptr
                     : &*report->accuracy);
  });
  row("answers with a box", [](const EvaluationReport* report) {
    return Share(report == nullptr ? nullptr : &report->format_rate);
  });
  for (const TermDivergence& term : any.divergences) {
    row(absl::StrCat("true KL ", MarkdownText(term.name)),
        [&](const EvaluationReport* report) {
          return Number(FindDivergence(report, term.name));
        });
  }
  return text;
}

}  // namespace

std::string FormatTraining(
    const CardRun& run,
    const std::map<std::string, EvaluationReport>& evaluations) {
  std::string text = absl::StrCat("## Training\n\n* Run: ",
                                  MarkdownText(run.name),
                                  "\n* Steps: ",
                                  run.step,
                                  "\n* Adapter: ",
                                  MarkdownText(run.adapter_digest),
                                  BaseDigestLine(run.base_digest),
                                  "\n* Data, SHA-256: ",
                                  MarkdownText(run.data_digest),
                                  "\n");
  const auto before = evaluations.find("before");
  const EvaluationReport* const first =
      before == evaluations.end() ? nullptr : &before->second;
  const EvaluationReport* const now = Find(evaluations, run);
  if (first != nullptr || now != nullptr) {
    absl::StrAppend(&text, HeldOut(first, now));
  }
  absl::StrAppend(
      &text,
      "\nSettings that the result depends on:\n\n",
      // ASCII, so that no character of a prompt reverses the direction of the
      // text.
      MarkdownBlock(
          nlohmann::json(run.settings)
              .dump(2, ' ', true, nlohmann::json::error_handler_t::replace),
          "json"));
  return TrainingSection(text);
}

}  // namespace dapd
