#include "common/data/claim_rules.h"

#include "absl/strings/str_replace.h"

namespace dapd {
namespace {

// Matches the beginning of 12, -3.5, \boxed{7}, $\frac{1}{2}$ or **12**.
constexpr char kValue[] =
    R"((?:\\boxed|\\d?frac|\\sqrt|\\\(|\\\[|\$|\*\*|[-+]?\d|[-+]?\.\d))";

}  // namespace

const std::vector<ClaimRule>& ClaimRules() {
  using Kind = ClaimRule::Kind;
  static const auto& rules = *new std::vector<ClaimRule>{
      // These rules find failures: the derivation failed.
      {Kind::kFailure,
       "stuck",
       R"(\b(?:i'?m|i am|we'?re|we are|i got|getting)\s+(?:\w+\s+)?(?:stuck|lost|nowhere)\b)",
       {"I'm stuck.", "I am completely stuck here", "This is getting nowhere"},
       {"The ball gets stuck in the hole.", "We are given 12 balls."}},
      {Kind::kFailure,
       "gives up",
       R"(\b(?:i|we)(?:'ll| will| must| have to| should)?\s+(?:give up|abandon)\b)",
       {"I give up.",
        "I'll give up on the derivation",
        "We have to abandon it"},
       {"The trees give up their leaves."}},
      {Kind::kFailure,
       "cannot derive",
       R"(\b(?:can(?:no|')t|can not|could(?:n't| not)|unable to|not able to|fail(?:ed|ing)? to|don't know how to)\s+(?:\w+\s+){0,2}?(?:find|derive|solve|determine|compute|complete|finish|prove|resolve|see|get)\b)",
       {"I can't find the pattern.",
        "We are unable to derive it",
        "I cannot seem to solve this",
        "I failed to finish the computation"},
       {"They cannot share a cake.", "Find all numbers that can not be sums."}},
      {Kind::kFailure,
       "does not work",
       R"(\b(?:approach|method|derivation|calculation|computation|attempt|this|that|it)\s+(?:\w+\s+){0,2}?(?:does(?:n't| not) work|is(?:n't| not) working|did(?:n't| not) work|failed|fails|breaks down|leads (?:me |us )?nowhere|went wrong)\b)",
       {"This approach does not work.",
        "The derivation has failed",
        "that clearly isn't working",
        "My calculation went wrong somewhere"},
       {"The method works for all n.", "This does not divide 12."}},
      {Kind::kFailure,
       "contradiction",
       R"(\b(?:this|which|that|we get|i get|leads to|reach(?:es)?)\b.{0,40}\b(?:contradict\w*|inconsisten\w*|impossible|makes no sense|does(?:n't| not) match)\b)",
       {"This leads to a contradiction.",
        "We get inconsistent equations",
        "That doesn't match"},
       {"The two lines are parallel."}},
      {Kind::kFailure,
       "made a mistake",
       R"(\b(?:i|we)\s+(?:must have|have|may have|might have|probably)?\s*(?:made|make|making)\s+(?:a|an|some)\s+(?:\w+\s+)?(?:mistake|error)s?\b)",
       {"I must have made a mistake.", "We made an arithmetic error"},
       {"A typist made a list."}},

      // These rules find claims: the text attributes an answer to a source.
      {Kind::kClaim,
       "memory",
       R"((?:\b(?:i|we)\s+(?:\w+\s+){0,2}?(?:recall|remember)(?:ed|ing)?\b|\bfrom (?:my )?memory\b|\b(?:recalling|remembering) (?:that|the)\b|\bmy memory\b).{0,160}?\b(?:answer|result|solution|value)\b.{0,60}?(?:\bis|\bwas|\bto be|\bbeing|\bas|\bof|=|:)\s*{value})",
       {"I recall that the answer is 42.",
        "I remember the answer to this problem being $\\frac{3}{4}$",
        "From memory, the answer is \\boxed{7}",
        "I do vaguely remember this one from AIME. The answer was 125."},
       {"I recall that triangles have three sides.",
        "The answer is 42.",
        "I remember the answer is even."}},
      {Kind::kClaim,
       "reference",
       R"(\b(?:reference|answer key|ground[- ]truth|given solution|provided (?:solution|answer))\b(?!\s+(?:angle|point|frame|triangle|line|value of)).{0,80}?(?:\bsays?|\bsaid|\bgives?|\bgave|\bstates?|\bis|\bwas|\bshows?|\bhas|\blists?|=|:)\s+(?:that\s+)?(?:the\s+(?:final\s+)?(?:answer|result|value)\s+)?(?:is\s+|as\s+|to be\s+|=\s*)?{value})",
       {"The reference solution says 42.",
        "According to the answer key, the result is \\boxed{12}",
        "The reference answer is $5$",
        "the ground truth is 17"},
       {"The reference angle is 30 degrees.",
        "The reference solution is long.",
        "See the reference."}},
      {Kind::kClaim,
       "official solution",
       R"(\bofficial\s+(?:solution|answer|key|result)s?\b.{0,100}?(?:\bsays?|\bsaid|\bgives?|\bgave|\bstates?|\bis|\bwas|\bshows?|\bhas|\blists?|=|:)\s+(?:that\s+)?(?:the\s+(?:final\s+)?(?:answer|result|value)\s+)?(?:is\s+|as\s+|to be\s+|=\s*)?{value})",
       {"The official answer is 42.",
        "The official solution gives the final answer as $\\frac{1}{2}$",
        "official solutions to this contest say that the answer is 9"},
       {"The official solution uses induction.",
        "An official measured 12 fields."}},
      {Kind::kClaim,
       "outside source",
       R"((?:\baccording to\b|\b(?:given|stated|listed|posted|published|found) (?:in|on|by|at)\b|\bi (?:found|saw|looked|searched|checked|read)\b|\bfrom\b).{0,60}?\b(?:aops|art of problem solving|wikipedia|oeis|internet|online|websites?|web|stack ?exchange|math ?overflow|textbook|literature|wolfram ?alpha|forum|(?:other|external|known|reliable) sources?)\b.{0,120}?(?:\bis|\bwas|\bto be|\bas|\bgives?|\bsays?|=|:)\s*{value})",
       {"According to AoPS, the answer is 42.",
        "I looked this up online and the answer is \\boxed{3}",
        "From other sources the result is known to be $12$"},
       {"From the textbook we take Vieta's relations.",
        "According to the problem, the sum is 12."}},

      // These rules find exclusions: wordings that look like claims.
      {Kind::kExclusion,
       "guess",
       R"(\b(?:guess\w*|perhaps|maybe|might be|could be|may be|suspect|bet)\b)",
       {"I guess the answer is 42.",
        "I recall that the answer might be 12",
        "Maybe the official answer is 3."},
       {"I recall that the answer is 42."}},
      {Kind::kExclusion,
       "formula",
       R"((?:recall|remember)(?:ed|ing)?\s+(?:that\s+)?(?:the|a|an|some|this|from)?\s*(?:[\w'-]+\s+){0,3}?(?:formulas?|theorem|identity|lemma|inequality|definition|fact|rule|law|method|technique|property|relation)\b)",
       {"I recall the formula for the sum, whose value is 55.",
        "I remember Vieta's theorem: the result is 3"},
       {"I recall that the answer is 42 by the theorem."}},
      {Kind::kExclusion,
       "research",
       R"(\bafter\s+(?:\w+\s+){0,5}?(?:re-?search\w*|looking)\b)",
       {"After some research, the official answer is 42.",
        "after doing a bit of research I found online that it is 3"},
       {"After that, the official answer is 42."}}};
  return rules;
}

std::string ExpandedPattern(const ClaimRule& rule) {
  return absl::StrReplaceAll(rule.pattern, {{"{value}", kValue}});
}

}  // namespace dapd
