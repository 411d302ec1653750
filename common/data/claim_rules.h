// By which wording an answer is a wrong claim: a derivation that says it
// failed, and behind it a concrete answer that is put down to memory, a
// reference, an official solution or an outside source instead of being
// derived. The probe of the DAPD paper (arXiv 2608.01735) counts these; it
// names the kinds, the wordings here are this project's.
#pragma once

#include <string>
#include <vector>

namespace dapd {

struct ClaimRule {
  enum class Kind {
    kFailure,    // the derivation says that it failed
    kClaim,      // an answer is put down to `name`
    kExclusion,  // what looks like a claim and is none
  };
  Kind kind;
  std::string name;
  // An ICU regular expression that ignores case; {value} stands for the
  // beginning of a concrete value: a number, a box, a formula.
  std::string pattern;
  // Texts that it finds and texts that it does not: a test tries each.
  std::vector<std::string> finds;
  std::vector<std::string> misses;
};

// The one table of them.
const std::vector<ClaimRule>& ClaimRules();

// A rule's pattern with {value} written out.
std::string ExpandedPattern(const ClaimRule& rule);

}  // namespace dapd
