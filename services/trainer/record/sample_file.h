// samples/step-000001.jsonl: all that was sampled for a step, replayable. A
// line an answer, in the batch's order: {"id", "problem", "reference",
// "rollout_ids", "rollout", "finish_reason", "has_box", "correct"}, and what
// only some have. common/data/sample_rows.h reads it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "services/trainer/step/rollout_record.h"

namespace dapd {

absl::Status WriteSamples(const std::string& path,
                          const std::vector<RolloutRecord>& records);

}  // namespace dapd
