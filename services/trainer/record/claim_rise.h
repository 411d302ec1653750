// The warning that claims become more probable in the view of the problem
// alone, where the student has nothing to know an answer from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "services/trainer/record/evaluation_report.h"

namespace dapd {

struct ClaimRise {
  int64_t first_step = 0;  // of the first evaluation
  int64_t step = 0;        // of the newest
  Interval first;          // claims->none
  Interval now;
};

inline constexpr double kMinClaimRise = 1.5;

// Compares the newest of these evaluations, which have figures of claims, with
// the first. Returns a rise if the newest interval lies above the first one and
// its mean is at least kMinClaimRise times the first mean; nothing with fewer
// than two such evaluations.
std::optional<ClaimRise> FindClaimRise(
    const std::map<std::string, EvaluationReport>& evaluations);

// Returns one line for people: both figures, the meaning and the next step.
std::string Describe(const ClaimRise& rise);

}  // namespace dapd
