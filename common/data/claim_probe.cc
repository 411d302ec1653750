#include "common/data/claim_probe.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/base/utf8.h"
#include "common/data/claim_rules.h"
#include "common/data/sentence_end.h"

namespace dapd {
namespace {

constexpr double kPer = 10000.0;
constexpr size_t kMaxSentenceBytes = 2000;  // longer sentences are cut into
                                            // pieces
// ICU counts in units of about a millisecond. No pattern of the table comes
// near this limit.
constexpr int32_t kTimeLimit = 200;

// Returns false inside a UTF-8 character.
bool IsBoundary(absl::string_view text, size_t at) {
  return at == text.size() || BeginsCharacter(text[at]);
}

std::vector<std::string> Sentences(absl::string_view text) {
  std::vector<std::string> sentences;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool too_long =
        i + 1 - start >= kMaxSentenceBytes && IsBoundary(text, i + 1);
    if (!EndsSentence(text, i) && !too_long && i + 1 < text.size()) continue;
    const absl::string_view sentence =
        absl::StripAsciiWhitespace(text.substr(start, i + 1 - start));
    if (!sentence.empty()) sentences.emplace_back(sentence);
    start = i + 1;
  }
  return sentences;
}

icu::UnicodeString ToUnicode(absl::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

// Holds the place of a match in a text.
struct Place {
  int32_t start = 0;
  int32_t end = 0;
};

// Returns the first match of the pattern; nothing if there is no match, or if
// the search takes too long.
std::optional<Place> FindFirst(const icu::RegexPattern& pattern,
                               const icu::UnicodeString& text) {
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(
      pattern.matcher(text, error));
  if (U_FAILURE(error)) return std::nullopt;
  matcher->setTimeLimit(kTimeLimit, error);
  if (!matcher->find(error) || U_FAILURE(error)) return std::nullopt;
  return Place{matcher->start(error), matcher->end(error)};
}

}  // namespace

struct ClaimProbe::Rules {
  std::vector<std::unique_ptr<icu::RegexPattern>> patterns;  // by index of the
                                                             // rule

  // Returns the index of the first rule of this kind that matches `text` with a
  // match that begins before `end`.
  std::optional<size_t> First(ClaimRule::Kind kind,
                              const icu::UnicodeString& text,
                              int32_t end) const {
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (ClaimRules()[i].kind != kind) continue;
      const std::optional<Place> place = FindFirst(*patterns[i], text);
      if (place.has_value() && place->start < end) return i;
    }
    return std::nullopt;
  }

  // Returns where the first words end that say that the derivation failed.
  std::optional<int32_t> EndOfFailure(const icu::UnicodeString& text) const {
    std::optional<int32_t> end;
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (ClaimRules()[i].kind != ClaimRule::Kind::kFailure) continue;
      const std::optional<Place> place = FindFirst(*patterns[i], text);
      if (!place.has_value()) continue;
      end = std::min(end.value_or(place->end), place->end);
    }
    return end;
  }
};

ClaimProbe::ClaimProbe(std::unique_ptr<Rules> rules, int reach)
    : rules_(std::move(rules)), reach_(reach) {}
ClaimProbe::ClaimProbe(ClaimProbe&&) noexcept = default;
ClaimProbe::~ClaimProbe() = default;

absl::StatusOr<ClaimProbe> ClaimProbe::Make(int reach) {
  auto rules = std::make_unique<Rules>();
  for (const ClaimRule& rule : ClaimRules()) {
    UErrorCode error = U_ZERO_ERROR;
    UParseError place = {};
    rules->patterns.emplace_back(
        icu::RegexPattern::compile(ToUnicode(ExpandedPattern(rule)),
                                   UREGEX_CASE_INSENSITIVE,
                                   place,
                                   error));
    if (U_FAILURE(error)) {
      return absl::InternalError(
          absl::StrCat("the rule '",
                       rule.name,
                       "' is not a valid regular expression: ",
                       u_errorName(error),
                       " at ",
                       place.offset));
    }
  }
  return ClaimProbe(std::move(rules), reach);
}

bool ClaimProbe::RuleFinds(size_t rule, absl::string_view text) const {
  return FindFirst(*rules_->patterns[rule], ToUnicode(text)).has_value();
}

std::optional<ClaimFinding> ClaimProbe::Find(absl::string_view text) const {
  using Kind = ClaimRule::Kind;
  const std::vector<std::string> sentences = Sentences(text);
  std::optional<size_t> failure;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const icu::UnicodeString sentence = ToUnicode(sentences[i]);
    const std::optional<int32_t> failed_here = rules_->EndOfFailure(sentence);
    const bool in_reach =
        failure.has_value() && i - *failure <= static_cast<size_t>(reach_);
    if (in_reach || failed_here.has_value()) {
      // Example: "I cannot derive it, but I remember that the answer is 12."
      const int32_t from = in_reach ? 0 : *failed_here;
      // Example: "I remember this one. The answer is 12."
      icu::UnicodeString window = sentence;
      if (i + 1 < sentences.size()) {
        window.append(' ').append(ToUnicode(sentences[i + 1]));
      }
      const std::optional<size_t> claim =
          rules_->First(Kind::kClaim,
                        icu::UnicodeString(window, from),
                        sentence.length() - from);
      if (claim.has_value() &&
          !rules_->First(Kind::kExclusion, window, window.length())
               .has_value()) {
        return ClaimFinding{ClaimRules()[*claim].name,
                            sentences[in_reach ? *failure : i],
                            sentences[i]};
      }
    }
    if (failed_here.has_value()) failure = i;
  }
  return std::nullopt;
}

Interval ClaimsPerTenThousand(const std::vector<ClaimCount>& problems,
                              int64_t resamples,
                              uint64_t seed) {
  int64_t answers = 0;
  int64_t claims = 0;
  for (const ClaimCount& problem : problems) {
    answers += problem.answers;
    claims += problem.claims;
  }
  if (answers == 0) return {};
  // If all problems have the same rate, the interval is Wilson's. The condition
  // compares integers: the claims of each problem times all answers, and all
  // claims times the answers of the problem.
  if (std::ranges::all_of(problems, [&](const ClaimCount& problem) {
        return problem.claims * answers == claims * problem.answers;
      })) {
    const Interval share = WilsonInterval(
        static_cast<double>(claims) / static_cast<double>(answers),
        static_cast<double>(problems.size()));
    return {kPer * share.mean, kPer * share.low, kPer * share.high};
  }
  // Distributions of the standard library differ between implementations.
  std::mt19937_64 random(seed);
  const auto count = static_cast<uint64_t>(problems.size());
  std::vector<double> rates;
  for (int64_t i = 0; i < resamples; ++i) {
    int64_t drawn_answers = 0;
    int64_t drawn_claims = 0;
    for (uint64_t k = 0; k < count; ++k) {
      const ClaimCount& problem =
          problems[static_cast<size_t>((random() >> 11) % count)];
      drawn_answers += problem.answers;
      drawn_claims += problem.claims;
    }
    rates.push_back(kPer * static_cast<double>(drawn_claims) /
                    static_cast<double>(std::max<int64_t>(drawn_answers, 1)));
  }
  std::sort(rates.begin(), rates.end());
  const auto quantile = [&](double share) {
    const double place = share * static_cast<double>(rates.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, rates.size() - 1);
    return rates[below] +
           (place - static_cast<double>(below)) * (rates[above] - rates[below]);
  };
  const double mean =
      kPer * static_cast<double>(claims) / static_cast<double>(answers);
  if (rates.empty()) return {mean, mean, mean};
  return {mean, quantile(0.025), quantile(0.975)};
}

}  // namespace dapd
