// What one optimizer step measured, and its line in metrics.jsonl.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/objective/divergence_sums.h"
#include "common/objective/spec/term.h"
#include "common/training/policy.h"

namespace dapd {

struct TermMetrics {
  std::string name;
  double value = 0.0;      // plain mean over micro-batches of the token means
  double unclipped = 0.0;  // the same of the true KL divergence
  double weight = 0.0;
  int64_t tokens = 0;             // scored, all micro-batches
  double clipped_fraction = 0.0;  // clipped tokens / tokens
};

struct ObjectiveMetrics {
  double loss = 0.0;  // sum of weight * value
  std::vector<TermMetrics> terms;
};

// Adds up the micro-batches of a step.
class ObjectiveAccumulator {
 public:
  explicit ObjectiveAccumulator(const std::vector<Term>& terms);
  // `sums`: one a term, as AccumulateMicroBatch returns them.
  void Add(const std::vector<DivergenceSums>& sums);
  ObjectiveMetrics Finish() const;

  // What was added so far, for another rank; doubles survive exactly.
  std::string Serialize() const;
  // Adds what another rank serialised. DATA_LOSS if it is of other terms.
  absl::Status Merge(const std::string& serialized);

 private:
  std::vector<TermMetrics> totals_;
  std::vector<int64_t> clipped_tokens_;
  int64_t micro_batches_ = 0;
};

// {"loss", "terms": {name: {"value", "weight", "tokens", "clipped_fraction",
// "unclipped"}}}
nlohmann::ordered_json ToJson(const ObjectiveMetrics& metrics);

// {"step" (from 1), "loss", "gradient_norm" (before clipping),
// "learning_rate", "terms"}
nlohmann::ordered_json ToJson(int64_t step,
                              const ObjectiveMetrics& metrics,
                              const OptimizerStep& optimizer);

}  // namespace dapd
