#include "common/training/step_metrics.h"

#include <algorithm>

#include "dapd/v1/rank.pb.h"

namespace dapd {

ObjectiveAccumulator::ObjectiveAccumulator(const std::vector<Term>& terms)
    : clipped_tokens_(terms.size(), 0) {
  for (const Term& term : terms) {
    totals_.push_back({.name = term.name, .weight = term.weight});
  }
}

void ObjectiveAccumulator::Add(const std::vector<DivergenceSums>& sums) {
  for (size_t k = 0; k < totals_.size(); ++k) {
    totals_[k].value += sums[k].value();
    totals_[k].unclipped += sums[k].true_value();
    totals_[k].tokens += sums[k].tokens;
    clipped_tokens_[k] += sums[k].clipped_tokens;
  }
  ++micro_batches_;
}

ObjectiveMetrics ObjectiveAccumulator::Finish() const {
  ObjectiveMetrics metrics;
  metrics.terms = totals_;
  // None: every sample was left out.
  const auto micro_batches =
      static_cast<double>(std::max<int64_t>(1, micro_batches_));
  for (size_t k = 0; k < totals_.size(); ++k) {
    TermMetrics& term = metrics.terms[k];
    term.value /= micro_batches;
    term.unclipped /= micro_batches;
    term.clipped_fraction =
        static_cast<double>(clipped_tokens_[k]) /
        static_cast<double>(std::max<int64_t>(1, term.tokens));
    metrics.loss += term.weight * term.value;
  }
  return metrics;
}

v1::ObjectiveSums ObjectiveAccumulator::Sums() const {
  v1::ObjectiveSums sums;
  sums.set_micro_batches(micro_batches_);
  for (size_t k = 0; k < totals_.size(); ++k) {
    v1::TermSums& term = *sums.add_terms();
    term.set_value(totals_[k].value);
    term.set_unclipped(totals_[k].unclipped);
    term.set_tokens(totals_[k].tokens);
    term.set_clipped_tokens(clipped_tokens_[k]);
  }
  return sums;
}

absl::Status ObjectiveAccumulator::Merge(const v1::ObjectiveSums& other) {
  if (static_cast<size_t>(other.terms_size()) != totals_.size()) {
    return absl::DataLossError("another rank has other terms");
  }
  for (size_t k = 0; k < totals_.size(); ++k) {
    const v1::TermSums& term = other.terms(static_cast<int>(k));
    totals_[k].value += term.value();
    totals_[k].unclipped += term.unclipped();
    totals_[k].tokens += term.tokens();
    clipped_tokens_[k] += term.clipped_tokens();
  }
  micro_batches_ += other.micro_batches();
  return absl::OkStatus();
}

}  // namespace dapd
