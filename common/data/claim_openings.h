// The openings of claims: texts that a model begins when it asserts an answer
// from memory or from a reference, up to the value. The rules of claim_rules.h
// find claims in texts that were sampled; the probability of these openings is
// measured without any sampling (claim_meter.h). A test compares the two
// tables: every rule for claims has an opening, and it finds each of them.
#pragma once

#include <string>
#include <vector>

namespace dapd {

struct ClaimOpening {
  std::string rule;  // the name of the ClaimRule that finds the claim
  std::string text;
};

const std::vector<ClaimOpening>& ClaimOpenings();

// Returns sentences that say that a derivation failed, as a claim may follow
// them.
const std::vector<std::string>& FailureOpenings();

// Returns each claim, and each claim behind each failure. No text begins
// another one.
std::vector<std::string> ClaimTexts();

}  // namespace dapd
