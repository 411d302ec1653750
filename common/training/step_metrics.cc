#include "common/training/step_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "dapd/v1/rank.pb.h"

namespace dapd {

bool HasGradient(const std::vector<TermMetrics>& terms) {
  return std::ranges::any_of(terms, [](const TermMetrics& term) {
    return term.weight != 0.0 && term.tokens > 0;
  });
}

ObjectiveAccumulator::ObjectiveAccumulator(const std::vector<Term>& terms)
    : clipped_tokens_(terms.size(), 0),
      regimes_(terms.size()),
      by_teacher_(terms.size()) {
  for (const Term& term : terms) {
    totals_.push_back({.name = term.name, .weight = term.weight});
    if (std::holds_alternative<Routed>(term.target)) {
      totals_.back().regime_shares.emplace();
    }
  }
}

void ObjectiveAccumulator::Add(const std::vector<DivergenceSums>& sums,
                               const std::vector<SumsByTeacher>& by_teacher) {
  for (size_t k = 0; k < totals_.size(); ++k) {
    totals_[k].value += sums[k].value();
    totals_[k].unclipped += sums[k].true_value();
    totals_[k].tokens += sums[k].tokens;
    clipped_tokens_[k] += sums[k].clipped_tokens;
    for (size_t r = 0; r < kNumRegimes; ++r) {
      regimes_[k][r] += sums[k].regimes[r];
    }
  }
  for (size_t k = 0; k < by_teacher.size(); ++k) {
    for (const auto& [teacher, of_teacher] : by_teacher[k]) {
      by_teacher_[k][teacher] += of_teacher;
    }
  }
  ++micro_batches_;
}

bool ObjectiveAccumulator::HasFiniteLoss() const {
  return std::ranges::all_of(totals_, [](const TermMetrics& term) {
    return term.weight == 0.0 || std::isfinite(term.value);
  });
}

ObjectiveMetrics ObjectiveAccumulator::Finish() const {
  ObjectiveMetrics metrics;
  metrics.terms = totals_;
  // No micro-batch: every sample was left out.
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
    for (const auto& [teacher, sums] : by_teacher_[k]) {
      term.by_teacher[teacher] = {.unclipped = sums.true_value(),
                                  .tokens = sums.tokens};
    }
    if (!term.regime_shares.has_value()) continue;
    const int64_t tokens =
        std::reduce(regimes_[k].begin(), regimes_[k].end(), int64_t{0});
    for (size_t r = 0; r < kNumRegimes; ++r) {
      (*term.regime_shares)[r] =
          static_cast<double>(regimes_[k][r]) /
          static_cast<double>(std::max<int64_t>(1, tokens));
    }
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
    for (const auto& [teacher, of_teacher] : by_teacher_[k]) {
      v1::TeacherSums& added = (*term.mutable_teachers())[teacher];
      added.set_unclipped(of_teacher.unclipped);
      added.set_denominator(of_teacher.denominator);
      added.set_tokens(of_teacher.tokens);
    }
    if (!totals_[k].regime_shares.has_value()) continue;
    for (const int64_t tokens : regimes_[k]) term.add_regime_tokens(tokens);
  }
  return sums;
}

absl::Status ObjectiveAccumulator::Merge(const v1::ObjectiveSums& other) {
  if (static_cast<size_t>(other.terms_size()) != totals_.size()) {
    return absl::DataLossError("another rank has different terms");
  }
  for (size_t k = 0; k < totals_.size(); ++k) {
    const v1::TermSums& term = other.terms(static_cast<int>(k));
    const size_t regimes =
        totals_[k].regime_shares.has_value() ? kNumRegimes : 0;
    if (static_cast<size_t>(term.regime_tokens_size()) != regimes) {
      return absl::DataLossError(
          absl::StrCat("another rank has a different target in term '",
                       totals_[k].name,
                       "'"));
    }
    totals_[k].value += term.value();
    totals_[k].unclipped += term.unclipped();
    totals_[k].tokens += term.tokens();
    clipped_tokens_[k] += term.clipped_tokens();
    for (const auto& [teacher, of_teacher] : term.teachers()) {
      by_teacher_[k][teacher] += {.unclipped = of_teacher.unclipped(),
                                  .tokens = of_teacher.tokens(),
                                  .denominator = of_teacher.denominator()};
    }
    for (size_t r = 0; r < regimes; ++r) {
      regimes_[k][r] += term.regime_tokens(static_cast<int>(r));
    }
  }
  micro_batches_ += other.micro_batches();
  return absl::OkStatus();
}

}  // namespace dapd
