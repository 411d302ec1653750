// Merges the measurements of all ranks in a step. All ranks call the same
// functions in the same order.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/collective/collective.h"
#include "common/training/step_metrics.h"
#include "common/training/step_report.h"

namespace dapd {

// Rank 0 adds the sums of the other ranks' micro-batches. Returns DATA_LOSS if
// they belong to other terms.
absl::Status MergeLosses(Collective& collective,
                         ObjectiveAccumulator* objective);

// Rank 0 adds the other ranks' measurements to the report. Returns DATA_LOSS if
// another rank ended the step with an adapter of another digest.
absl::Status MergeReports(Collective& collective,
                          const std::string& adapter_digest,
                          StepReport* report);

}  // namespace dapd
