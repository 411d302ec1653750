// The message that the status RPC and the status page send, out of what the
// trainer has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/training/clip_watch.h"
#include "dapd/v1/trainer.pb.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

// The state with its workers.
v1::GetStatusResponse StatusMessage(const TrainerStatus& status);

// Sets what the message says of the last step, from the step's line in
// metrics.jsonl: the fields that the rows of metric_table.h name, step, digest
// and what is derived from counts and seconds. A metric that the line lacks, as
// one of an earlier version may, is left as it was; nlohmann's exception for a
// line that StepLine did not write.
void ShowStepLine(const nlohmann::ordered_json& line,
                  v1::GetStatusResponse* message);

// Sets the message's warnings to what these findings say.
void ShowClipFindings(const std::vector<ClipFinding>& findings,
                      v1::GetStatusResponse* message);

// Adds the warning that the run waits for its disk, in place of the one before;
// empty: it does not wait.
void ShowDiskWait(const std::string& text, v1::GetStatusResponse* message);

// How many evaluations within training a message lists: more than a curve as
// wide as the status page has pixels for, and with some 700 bytes each far from
// what a message may hold (kMaxMessageBytes).
inline constexpr int kMaxListedEvaluations = 1000;

// Adds the evaluation, in place of one of the same `when`, and counts it. Of
// those within training the oldest makes room; one that is older than all that
// are listed then was counted when it was listed, and stays out.
void ShowEvaluation(const std::string& when,
                    const EvaluationReport& report,
                    v1::GetStatusResponse* message);

}  // namespace dapd
