// ClaimProbe finds wrong claims (claim_rules.h) in answers.
// ClaimsPerTenThousand measures how frequent they are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/data/confidence_interval.h"

namespace dapd {

struct ClaimFinding {
  std::string source;   // the name of the rule for the claim
  std::string failure;  // the sentence that says that the derivation failed
  std::string claim;    // the sentence where the claim begins
};

// Thread-safe.
class ClaimProbe {
 public:
  // A claim must begin at most this many sentences behind the sentence that
  // says that the derivation failed. Long derivations start over many times,
  // and only a claim that stands in place of the rest of a derivation counts.
  static constexpr int kDefaultReach = 8;

  // Returns INTERNAL if a rule's pattern is not a regular expression.
  static absl::StatusOr<ClaimProbe> Make(int reach = kDefaultReach);
  ClaimProbe(ClaimProbe&&) noexcept;
  ~ClaimProbe();

  // Returns the first claim behind a failure. The claim may be in the same
  // sentence as the failure, its value must be in the claim's sentence or in
  // the next one, and no exclusion rule may match these two sentences. The
  // caller must know whether the answer is wrong.
  std::optional<ClaimFinding> Find(absl::string_view text) const;

  // Returns whether the rule with index `rule` in ClaimRules() matches `text`.
  bool RuleFinds(size_t rule, absl::string_view text) const;

 private:
  struct Rules;
  ClaimProbe(std::unique_ptr<Rules> rules, int reach);
  std::unique_ptr<Rules> rules_;
  int reach_;
};

// Counts of the answers to one problem.
struct ClaimCount {
  int64_t answers = 0;
  int64_t claims = 0;
};

// Returns the wrong claims per 10,000 answers, with a 95 % percentile interval
// over `resamples` resamples of problems. All answers of a problem are drawn
// together, since they tend to be wrong together. The same `seed` gives the
// same result on every platform. Where all problems have the same rate, for
// example zero, every resample has this rate; the interval is then Wilson's,
// with one trial per problem.
Interval ClaimsPerTenThousand(const std::vector<ClaimCount>& problems,
                              int64_t resamples,
                              uint64_t seed);

}  // namespace dapd
