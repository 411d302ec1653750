#include "common/training/step_metrics.h"

namespace dapd {

ObjectiveAccumulator::ObjectiveAccumulator(const std::vector<Term>& terms)
    : clipped_tokens_(terms.size(), 0) {
  for (const Term& term : terms) {
    totals_.push_back({.name = term.name, .weight = term.weight});
  }
}

void ObjectiveAccumulator::Add(const std::vector<DivergenceSums>& sums) {
  for (size_t k = 0; k < totals_.size(); ++k) {
    const auto tokens = static_cast<double>(sums[k].tokens);
    totals_[k].value += sums[k].clipped / tokens;
    totals_[k].unclipped += sums[k].unclipped / tokens;
    totals_[k].tokens += sums[k].tokens;
    clipped_tokens_[k] += sums[k].clipped_tokens;
  }
  ++micro_batches_;
}

ObjectiveMetrics ObjectiveAccumulator::Finish() const {
  ObjectiveMetrics metrics;
  metrics.terms = totals_;
  const auto micro_batches = static_cast<double>(micro_batches_);
  for (size_t k = 0; k < totals_.size(); ++k) {
    TermMetrics& term = metrics.terms[k];
    term.value /= micro_batches;
    term.unclipped /= micro_batches;
    term.clipped_fraction = static_cast<double>(clipped_tokens_[k]) /
                            static_cast<double>(term.tokens);
    metrics.loss += term.weight * term.value;
  }
  return metrics;
}

nlohmann::ordered_json ToJson(const ObjectiveMetrics& metrics) {
  nlohmann::ordered_json terms = nlohmann::ordered_json::object();
  for (const TermMetrics& term : metrics.terms) {
    terms[term.name] = {{"value", term.value},
                        {"weight", term.weight},
                        {"tokens", term.tokens},
                        {"clipped_fraction", term.clipped_fraction},
                        {"unclipped", term.unclipped}};
  }
  return {{"loss", metrics.loss}, {"terms", terms}};
}

nlohmann::ordered_json ToJson(int64_t step,
                              const ObjectiveMetrics& metrics,
                              const OptimizerStep& optimizer) {
  nlohmann::ordered_json objective = ToJson(metrics);
  return {{"step", step},
          {"loss", metrics.loss},
          {"gradient_norm", optimizer.gradient_norm},
          {"learning_rate", optimizer.learning_rate},
          {"terms", objective["terms"]}};
}

}  // namespace dapd
