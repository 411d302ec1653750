#include "common/training/step_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

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
  const auto micro_batches = static_cast<double>(micro_batches_);
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

std::string ObjectiveAccumulator::Serialize() const {
  nlohmann::ordered_json terms = nlohmann::ordered_json::array();
  for (size_t k = 0; k < totals_.size(); ++k) {
    terms.push_back({{"value", totals_[k].value},
                     {"unclipped", totals_[k].unclipped},
                     {"tokens", totals_[k].tokens},
                     {"clipped_tokens", clipped_tokens_[k]}});
  }
  return nlohmann::ordered_json{{"micro_batches", micro_batches_},
                                {"terms", terms}}
      .dump();
}

absl::Status ObjectiveAccumulator::Merge(const std::string& serialized) try {
  ASSIGN_OR_RETURN(const nlohmann::json other,
                   ParseJson(serialized, "the losses of another rank"));
  const nlohmann::json& terms = other.at("terms");
  if (terms.size() != totals_.size()) {
    return absl::DataLossError("another rank has other terms");
  }
  for (size_t k = 0; k < totals_.size(); ++k) {
    totals_[k].value += terms[k].at("value").get<double>();
    totals_[k].unclipped += terms[k].at("unclipped").get<double>();
    totals_[k].tokens += terms[k].at("tokens").get<int64_t>();
    clipped_tokens_[k] += terms[k].at("clipped_tokens").get<int64_t>();
  }
  micro_batches_ += other.at("micro_batches").get<int64_t>();
  return absl::OkStatus();
} catch (const nlohmann::json::exception& error) {
  return absl::DataLossError(absl::StrCat(
      "the losses of another rank cannot be read: ", error.what()));
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
