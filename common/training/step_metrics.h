// What the micro-batches of one optimizer step add up to.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "common/objective/divergence_sums.h"
#include "common/terms/term.h"
#include "common/training/step_report.h"

namespace dapd {

namespace v1 {
class ObjectiveSums;
}  // namespace v1

// Whether `terms` have a gradient: one of them has a weight, without which it
// is only measured, and counted a token. Else every sample is masked.
bool HasGradient(const std::vector<TermMetrics>& terms);

class ObjectiveAccumulator {
 public:
  explicit ObjectiveAccumulator(const std::vector<Term>& terms);
  // `sums`: one per term, as AccumulateMicroBatch returns them.
  void Add(const std::vector<DivergenceSums>& sums);
  ObjectiveMetrics Finish() const;
  bool HasGradient() const { return dapd::HasGradient(totals_); }
  // Of the terms that have a weight: others are only measured.
  bool HasFiniteLoss() const;

  // What was added so far, for another rank (proto/dapd/v1/rank.proto).
  v1::ObjectiveSums Sums() const;
  // Adds what another rank added. DATA_LOSS if it is of other terms.
  absl::Status Merge(const v1::ObjectiveSums& other);

 private:
  std::vector<TermMetrics> totals_;
  std::vector<int64_t> clipped_tokens_;
  std::vector<std::array<int64_t, kNumRegimes>> regimes_;  // of all tokens
  int64_t micro_batches_ = 0;
};

}  // namespace dapd
