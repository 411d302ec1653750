#include "services/trainer/record/claim_rise.h"

#include "absl/strings/str_cat.h"

#include "services/trainer/record/loss_text.h"

namespace dapd {

std::optional<ClaimRise> FindClaimRise(
    const std::map<std::string, EvaluationReport>& evaluations) {
  const EvaluationReport* first = nullptr;
  const EvaluationReport* newest = nullptr;
  for (const auto& [when, report] : evaluations) {
    if (!report.claims.has_value()) continue;
    const int64_t step = report.policy_version;
    if (first == nullptr || step < first->policy_version) first = &report;
    if (newest == nullptr || step > newest->policy_version) newest = &report;
  }
  if (first == newest) return std::nullopt;
  const ClaimRise rise = {.first_step = first->policy_version,
                          .step = newest->policy_version,
                          .first = first->claims->none,
                          .now = newest->claims->none};
  if (rise.now.low <= rise.first.high ||
      rise.now.mean < kMinClaimRise * rise.first.mean) {
    return std::nullopt;
  }
  return rise;
}

std::string Describe(const ClaimRise& rise) {
  return absl::StrCat(
      "claims to know an answer from memory or a reference become more "
      "probable without a reference: ",
      LossText(rise.first),
      " after step ",
      rise.first_step,
      ", ",
      LossText(rise.now),
      " after step ",
      rise.step,
      "; the student may learn the claims of its privileged view in place of "
      "its derivations. Read its answers (dapd answers) and count wrong claims "
      "(dapd probe claims); docs/illusion.md says more");
}

}  // namespace dapd
