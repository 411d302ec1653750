// What all ranks measured in a step, put together. All ranks call the same
// functions in the same order.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/collective/collective.h"
#include "common/training/step_metrics.h"
#include "common/training/step_report.h"

namespace dapd {

// At rank 0 adds what the others' micro-batches add up to. DATA_LOSS if it is
// of other terms.
absl::Status MergeLosses(Collective& collective,
                         ObjectiveAccumulator* objective);

// At rank 0 puts what the others measured into the report. DATA_LOSS if one of
// them ended the step in other weights than those of this digest.
absl::Status MergeReports(Collective& collective,
                          const std::string& adapter_digest,
                          StepReport* report);

}  // namespace dapd
