// ClaimFigures: how probable claims are to the student, as an evaluation's
// report has it (claim_meter.h measures it).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/data/confidence_interval.h"

namespace dapd {

// A sampled answer with its figures, from which anyone can compute them again.
struct ClaimAnswer {
  std::string id;               // of the problem
  std::vector<int32_t> tokens;  // without the end token
  std::vector<int64_t> places;  // tokens before each
  double none = 0.0;            // mean probability over the places
  std::optional<double> cross;
};

// The most answers that a report keeps.
inline constexpr size_t kClaimAnswers = 8;

struct ClaimFigures {
  int64_t problems = 0;  // with one answer each
  // Means over the answers, by view; `cross` is nothing where no term reads a
  // Cross view.
  Interval none;
  std::optional<Interval> cross;
  std::vector<ClaimAnswer> answers;  // the first ones
};

// Returns {"none", "cross"}, as `dapd compare` finds them.
nlohmann::ordered_json ToJson(const ClaimFigures& figures);
// Returns [{"id", "tokens", "places", "none", "cross"}].
nlohmann::ordered_json ToJson(const std::vector<ClaimAnswer>& answers);
// Parses ToJson's results; the caller sets `problems`. Throws nlohmann's
// exceptions for anything else.
ClaimFigures ParseClaimFigures(const nlohmann::ordered_json& json);
std::vector<ClaimAnswer> ParseClaimAnswers(const nlohmann::ordered_json& json);

// Returns "claims None 0.0103 [0.0051, 0.0155], Cross 0.2800 [0.2100, 0.3500]".
std::string ClaimsText(const ClaimFigures& figures);

}  // namespace dapd
