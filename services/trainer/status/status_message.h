// Makes the message that the status RPC and the status page send.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/training/clip_watch.h"
#include "dapd/v1/trainer.pb.h"
#include "services/trainer/record/claim_rise.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

// Returns the status with its workers.
v1::GetStatusResponse StatusMessage(const TrainerStatus& status);

// Sets the message's fields about the last step from the step's line in
// metrics.jsonl: the fields that the rows of metric_table.h name, step, digest,
// and values derived from counts and seconds. A metric that the line lacks (a
// line of an earlier version) keeps its value. Throws nlohmann's exceptions for
// a line that StepLine did not write.
void ShowStepLine(const nlohmann::ordered_json& line,
                  v1::GetStatusResponse* message);

// Replaces the message's warnings of terms by these findings.
void ShowClipFindings(const std::vector<ClipFinding>& findings,
                      v1::GetStatusResponse* message);

// Replaces the warning that the run waits for its disk; an empty `text` removes
// it.
void ShowDiskWait(const std::string& text, v1::GetStatusResponse* message);

// The `term` of the warning about claims; no term has the name of a key.
inline constexpr char kClaimWarning[] = "evaluation.claims";
// Replaces the warning about claims; without a rise it is removed.
void ShowClaimRise(const std::optional<ClaimRise>& rise,
                   v1::GetStatusResponse* message);

// The most evaluations within training that a message lists: more than a curve
// on the status page has pixels for. At some 700 bytes each they are far below
// the limit of a message (kMaxMessageBytes).
inline constexpr int kMaxListedEvaluations = 1000;

// Adds and counts the evaluation, or replaces the evaluation with this `when`.
// If too many are listed, drops the oldest evaluation within training. An
// evaluation that is older than all listed evaluations was counted when it was
// listed, and is not added.
void ShowEvaluation(const std::string& when,
                    const EvaluationReport& report,
                    v1::GetStatusResponse* message);

}  // namespace dapd
