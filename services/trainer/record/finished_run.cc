#include "services/trainer/record/finished_run.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/charts/run_history.h"
#include "common/config/preset_terms.h"
#include "common/training/clip_watch.h"
#include "services/trainer/record/claim_rise.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/record/step_lines.h"
#include "services/trainer/status/status_message.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

absl::Status ShowEvaluations(const std::string& folder,
                             const RunDisplays& displays) {
  ASSIGN_OR_RETURN(const std::vector<NamedEvaluation> evaluations,
                   ReadComparableEvaluations(folder));
  for (const auto& [when, report] : evaluations) {
    displays.metrics->RecordEvaluation(when, report);
    displays.status->Change([&](v1::GetStatusResponse& state) {
      ShowEvaluation(when, report, &state);
    });
  }
  displays.status->Change([&](v1::GetStatusResponse& state) {
    ShowClaimRise(FindClaimRise({evaluations.begin(), evaluations.end()}),
                  &state);
  });
  return absl::OkStatus();
}

// This is only a warning, because the run itself is complete.
void WarnOf(const char* what, const absl::Status& status) {
  if (status.ok()) return;
  LogWarning(absl::StrCat(
      what, " that cannot be shown: ", std::string(status.message())));
}

}  // namespace

absl::Status ShowFinishedRun(const Config& config,
                             const std::string& folder,
                             const RunDisplays& displays) {
  const int64_t steps = config.trainer.steps;
  displays.metrics->BeginPhase(TrainerPhase::kDone);
  displays.status->Change([&](v1::GetStatusResponse& state) {
    state.set_run_name(config.run.name);
    state.set_run_folder(folder);
    state.set_phase(NameOf(TrainerPhase::kDone));
    state.set_step(steps);
    state.set_start_step(steps);
    state.set_total_steps(steps);
    state.set_max_gradient_norm(config.trainer.max_grad_norm);
    state.set_max_rollout_tokens(config.rollout.max_new_tokens);
  });
  WarnOf("answers", RecallAnswers(folder, displays.answers));
  WarnOf("evaluations", ShowEvaluations(folder, displays));
  Json last;
  ClipWatch watch(ExpandTerms(config.objective));
  RETURN_IF_ERROR(ForEachStepLine(JoinPath(folder, "metrics.jsonl"),
                                  [&](int64_t /*step*/, const Json& line) {
                                    displays.history->Add(line);
                                    watch.Recall(line);
                                    last = line;
                                    return absl::OkStatus();
                                  })
                      .status());
  if (last.is_null()) return absl::OkStatus();
  try {
    displays.status->Change([&](v1::GetStatusResponse& state) {
      ShowStepLine(last, &state);
      // trainer.steps may be smaller now than when the run ended.
      state.set_total_steps(std::max(steps, state.step()));
      ShowClipFindings(watch.Findings(), &state);
    });
  } catch (const Json::exception& error) {
    WarnOf("a last step", absl::DataLossError(error.what()));
  }
  const v1::GetStatusResponse shown = displays.status->Get();
  displays.metrics->RecordStart(shown.step(), /*resumed=*/false);
  displays.metrics->RecordPolicy(shown.step(), shown.snapshot_step());
  return absl::OkStatus();
}

}  // namespace dapd
