// RunAnswers: the answers of a run that the status page, the report and `dapd
// answers` show: answers of the newest step, and the held-out answers of the
// run's first and newest evaluation side by side.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/mutex.h"
#include "services/trainer/record/answer_log.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/record/shown_answer.h"

namespace dapd {

struct AnswersToShow {
  StepAnswers step;
  // The optimizer steps of the policies of `held_out`; nothing if there is no
  // such evaluation.
  std::optional<int64_t> before;
  std::optional<int64_t> after;
  std::vector<AnswerPair> held_out;
};

// Returns {"step", "answers": [...], "held_out": {"before": 0, "after": 50 or
// null,
//  "pairs": [{"before": {...} or null, "after": {...} or null}]}}; each answer
// as in shown_answer.h.
nlohmann::ordered_json ToJson(const AnswersToShow& answers);

// Thread-safe.
class RunAnswers {
 public:
  void ShowStep(StepAnswers answers);
  // Ignores a report without answers, as earlier versions wrote them. Of two
  // reports of the same policy the later call counts.
  void ShowEvaluation(const EvaluationReport& report);

  AnswersToShow Get() const;

 private:
  struct HeldOut {
    int64_t policy_version = 0;
    std::vector<ShownAnswer> answers;
  };
  mutable Mutex mutex_;
  StepAnswers step_ ABSL_GUARDED_BY(mutex_);
  std::optional<HeldOut> first_ ABSL_GUARDED_BY(mutex_);
  std::optional<HeldOut> newest_ ABSL_GUARDED_BY(mutex_);
};

// Shows the answers in a run folder, in which a trainer may be running. Damaged
// evaluations are left out, with a warning; an error names answers.jsonl if it
// is damaged.
absl::Status RecallAnswers(const std::string& folder, RunAnswers* answers);

}  // namespace dapd
