// ClaimProbe: finds wrong claims (claim_rules.h) in answers, and how frequent
// they are.
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
  std::string failure;  // the sentence that says it failed
  std::string claim;    // the sentence where the claim begins
};

// Thread-safe.
class ClaimProbe {
 public:
  // How many sentences behind the one that says it failed a claim may begin:
  // long derivations start over many times, and only what stands instead of
  // the rest of one counts.
  static constexpr int kDefaultReach = 8;

  // INTERNAL if a rule of the table is no regular expression.
  static absl::StatusOr<ClaimProbe> Make(int reach = kDefaultReach);
  ClaimProbe(ClaimProbe&&) noexcept;
  ~ClaimProbe();

  // The first claim behind a failure, be it in the same sentence, within the
  // same or the next sentence as its value, that no exclusion takes back.
  // Whether the answer is wrong is the caller's knowledge.
  std::optional<ClaimFinding> Find(absl::string_view text) const;

  // Whether the rule with this place in ClaimRules() finds `text`.
  bool RuleFinds(size_t rule, absl::string_view text) const;

 private:
  struct Rules;
  ClaimProbe(std::unique_ptr<Rules> rules, int reach);
  std::unique_ptr<Rules> rules_;
  int reach_;
};

// Answers to one problem, and how many of them are wrong claims.
struct ClaimCount {
  int64_t answers = 0;
  int64_t claims = 0;
};

// Wrong claims per 10,000 answers, with a 95 % percentile interval over
// `resamples` resamples of problems: a problem's answers are drawn together,
// since they are wrong together. The same for the same `seed` everywhere.
// Where all problems have the same rate, none for example, every resample has
// it: the interval is Wilson's then, for as many trials as there are problems.
Interval ClaimsPerTenThousand(const std::vector<ClaimCount>& problems,
                              int64_t resamples,
                              uint64_t seed);

}  // namespace dapd
