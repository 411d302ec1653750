// Defines by its wording when an answer is a wrong claim: a derivation says
// that it failed, and the text behind it attributes a concrete answer to
// memory, a reference, an official solution or an outside source. The probe of
// the DAPD paper (arXiv 2608.01735) counts such answers. The paper names the
// kinds of claims; the wordings are this project's.
#pragma once

#include <string>
#include <vector>

namespace dapd {

struct ClaimRule {
  enum class Kind {
    kFailure,    // the derivation says that it failed
    kClaim,      // the text attributes an answer to the source `name`
    kExclusion,  // a wording that looks like a claim and is not a claim
  };
  Kind kind;
  std::string name;
  // This ICU regular expression ignores case; {value} stands for the beginning
  // of a concrete value: a number, a box, a formula.
  std::string pattern;
  // The pattern matches each text in `finds`, and no text in `misses`. A test
  // tries each of them.
  std::vector<std::string> finds;
  std::vector<std::string> misses;
};

const std::vector<ClaimRule>& ClaimRules();

// Returns the rule's pattern with {value} written out.
std::string ExpandedPattern(const ClaimRule& rule);

}  // namespace dapd
