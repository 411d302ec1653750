// PositionProbe: the gradients of two terms at single positions of a policy's
// samples, one position at a time (common/objective/position_gradient.h), for
// the summary of common/data/gradient_compatibility.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/json_lines.h"
#include "common/config/config.h"
#include "common/data/gradient_compatibility.h"
#include "common/data/probe_draws.h"
#include "common/data/sample_rows.h"
#include "common/objective/gradient_sums.h"
#include "common/objective/micro_batch.h"
#include "services/cli/local_policy.h"

namespace dapd {

struct PositionProbeOptions {
  int64_t positions = 0;    // of each problem, at most
  uint64_t seed = 0;        // of their draw and of the bootstrap
  double memory_gib = 0.0;  // of GradientSums; 0: half of the free memory
  // Gets a row for each measured position; null: none.
  JsonLinesWriter* lines = nullptr;
};

// Not thread-safe.
class PositionProbe {
 public:
  // Compares config.objective.terms[0] and [1], which score the same tokens.
  // `config` must outlive the probe; `problems` is their number. Fails with
  // exit code kUsage if the memory does not hold two sums.
  static absl::StatusOr<PositionProbe> Make(
      const Config& config,
      LocalPolicy local,
      int64_t problems,
      const PositionProbeOptions& options);

  // Draws positions from all answers to a problem and measures them. Leaves out
  // a problem without any position, where no answer has a token that both terms
  // count between its first and its last. Rows are {"id", "problem",
  // "position", "token_id", "first": {"loss", "norm"}, "second", "dot",
  // "cosine"}; cosine is null if a gradient is zero. Returns a DATA error for a
  // gradient that is not finite, and the errors of BuildViewsWithin.
  absl::Status MeasureProblem(const std::vector<SampleRow>& rows);

  int64_t num_positions() const {
    return static_cast<int64_t>(positions_.size());
  }
  // Returns the number of problems that were left out.
  int64_t num_skipped() const { return num_drawn_ - num_measured_; }

  // Returns a DATA error if there was no position at all.
  absl::StatusOr<CompatibilityReport> Finish() const;

 private:
  PositionProbe(const Config& config,
                LocalPolicy local,
                int64_t max_sums,
                const PositionProbeOptions& options);

  const Term& first() const { return config_->objective.terms[0]; }
  const Term& second() const { return config_->objective.terms[1]; }

  // Returns the positions at which both terms have a loss.
  PositionRange PositionsOf(const Views& views) const;
  // Adds the measures of one position, and `factor` times its gradients to the
  // means.
  absl::Status MeasurePosition(const ScoredSample& sample,
                               int64_t position,
                               double factor);

  const Config* config_;
  PositionProbeOptions options_;
  LocalPolicy local_;
  PassLimits limits_;
  HeadWorkspace workspace_;
  GradientSums sums_;
  std::vector<PositionProducts> positions_;
  int64_t num_drawn_ = 0;     // problems for which positions were drawn
  int64_t num_measured_ = 0;  // of these, those with a position
  // The means over the current problem.
  std::vector<at::Tensor> first_mean_;
  std::vector<at::Tensor> second_mean_;
};

}  // namespace dapd
