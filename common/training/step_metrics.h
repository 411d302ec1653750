// Adds up the micro-batches of one optimizer step.
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

// Returns whether `terms` have a gradient: at least one term with a weight
// counted a token (a term without weight is only measured). Otherwise every
// sample is masked.
bool HasGradient(const std::vector<TermMetrics>& terms);

class ObjectiveAccumulator {
 public:
  explicit ObjectiveAccumulator(const std::vector<Term>& terms);
  // `sums` and, unless it is empty, `by_teacher` have one element per term,
  // from ComputeMicroBatch.
  void Add(const std::vector<DivergenceSums>& sums,
           const std::vector<SumsByTeacher>& by_teacher = {});
  ObjectiveMetrics Finish() const;
  bool HasGradient() const { return dapd::HasGradient(totals_); }
  // Returns whether the loss of the terms with a weight is finite; other terms
  // are only measured.
  bool HasFiniteLoss() const;

  // Returns the sums so far, for another rank (proto/dapd/v1/rank.proto).
  v1::ObjectiveSums Sums() const;
  // Adds the sums of another rank. Returns DATA_LOSS if they belong to other
  // terms.
  absl::Status Merge(const v1::ObjectiveSums& other);

 private:
  std::vector<TermMetrics> totals_;
  std::vector<int64_t> clipped_tokens_;
  std::vector<std::array<int64_t, kNumRegimes>>
      regimes_;  // counts over all tokens
  std::vector<SumsByTeacher> by_teacher_;
  int64_t micro_batches_ = 0;
};

}  // namespace dapd
