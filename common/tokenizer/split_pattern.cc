#include "common/tokenizer/split_pattern.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/newer_characters.h"

namespace dapd {
namespace {

constexpr char kQwenPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool IsNewline(int32_t c) { return c == '\r' || c == '\n'; }

bool IsOther(int32_t c) {
  return !IsWhitespace(c) && !IsLetter(c) && !IsNumber(c);
}

bool IsNewlineOrSlash(int32_t c) { return IsNewline(c) || c == '/'; }

// [^\r\n\p{L}\p{N}]: one such character may stand in front of a word.
bool IsWordPrefix(int32_t c) {
  return !IsNewline(c) && !IsLetter(c) && !IsNumber(c);
}

// Folds ASCII to lower case, and U+017F, the long s, to s.
int32_t Fold(int32_t c) {
  if (c >= 'A' && c <= 'Z') return c - 'A' + 'a';
  return c == 0x17F ? 's' : c;
}

// Scans one piece. Every Match* returns the end of a match at `i`, or `i` if
// there is none.
class Scanner {
 public:
  Scanner(const std::vector<CodePoint>& points, Span piece)
      : points_(points), end_(piece.end) {}

  size_t MatchContraction(size_t i, bool fold) const {
    if (At(i) != '\'' || i + 1 >= end_) return i;
    const auto letter = [&](size_t k) { return fold ? Fold(At(k)) : At(k); };
    const int32_t first = letter(i + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
      return i + 2;
    }
    if (i + 2 >= end_) return i;
    const int32_t second = letter(i + 2);
    const bool two = (first == 'r' && second == 'e') ||
                     (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
    return two ? i + 3 : i;
  }

  template <typename Class>
  size_t Run(size_t i, Class is_member, size_t limit = SIZE_MAX) const {
    const size_t stop = limit < end_ - i ? i + limit : end_;
    while (i < stop && is_member(At(i))) ++i;
    return i;
  }

  // Matches " ?" in front of one or more members.
  template <typename Class>
  size_t MatchSpaced(size_t i, Class is_member) const {
    const size_t start = At(i) == ' ' ? i + 1 : i;
    const size_t stop = start < end_ ? Run(start, is_member) : start;
    return stop > start ? stop : i;
  }

  // Matches \s+(?!\S)|\s+ at white space.
  size_t MatchSpace(size_t i) const {
    const size_t stop = Run(i, IsWhitespace);
    return stop < end_ && stop - i > 1 ? stop - 1 : stop;
  }

  // Matches "[capital or uncased]*[small or uncased]+".
  size_t MatchEndingSmall(size_t i) const {
    const size_t capitals_end = Run(i, IsCapitalOrUncased);
    const size_t stop = Run(capitals_end, IsSmallOrUncased);
    if (stop > capitals_end) return stop;
    // The first part gives back as many characters as the second part needs.
    for (size_t k = capitals_end; k > i; --k) {
      if (IsSmallOrUncased(At(k - 1))) return k;
    }
    return i;
  }

  // " ?[^\s\p{L}\p{N}]+[may follow]*|\s*[\r\n]+|\s+(?!\S)|\s+" at a character
  // that is neither a letter nor a number.
  template <typename Class>
  size_t MatchBetweenWords(size_t i, Class may_follow) const {
    const size_t stop = MatchSpaced(i, IsOther);
    if (stop > i) return Run(stop, may_follow);
    const size_t space_end = Run(i, IsWhitespace);
    for (size_t k = space_end; k > i; --k) {
      if (IsNewline(At(k - 1))) return k;
    }
    return MatchSpace(i);
  }

  // Matches the expression of Qwen and Llama 3.
  size_t MatchModern(size_t i, size_t max_digits) const {
    const size_t stop = MatchContraction(i, /*fold=*/true);
    if (stop > i) return stop;
    const int32_t c = At(i);
    if (IsLetter(c)) return Run(i, IsLetter);
    if (IsWordPrefix(c) && i + 1 < end_ && IsLetter(At(i + 1))) {
      return Run(i + 1, IsLetter);
    }
    if (IsNumber(c)) return Run(i, IsNumber, max_digits);
    return MatchBetweenWords(i, IsNewline);
  }

  // Matches the expression of tekken.
  size_t MatchTekken(size_t i) const {
    const int32_t c = At(i);
    const size_t word = IsWordPrefix(c) ? i + 1 : i;
    size_t stop = MatchEndingSmall(word);
    if (stop > word) return stop;
    // A mark can be both the prefix and part of a word.
    stop = MatchEndingSmall(i);
    if (stop > i) return stop;
    stop = Run(word, IsCapitalOrUncased);
    if (stop > word) return stop;
    if (IsNumber(c)) return i + 1;
    return MatchBetweenWords(i, IsNewlineOrSlash);
  }

  size_t MatchGpt2(size_t i) const {
    size_t stop = MatchContraction(i, /*fold=*/false);
    if (stop > i) return stop;
    stop = MatchSpaced(i, IsLetter);
    if (stop > i) return stop;
    stop = MatchSpaced(i, IsNumber);
    if (stop > i) return stop;
    stop = MatchSpaced(i, IsOther);
    return stop > i ? stop : MatchSpace(i);
  }

 private:
  int32_t At(size_t i) const { return points_[i].value; }

  const std::vector<CodePoint>& points_;
  const size_t end_;
};

using Match = size_t (*)(const Scanner&, size_t);

// Matches a pattern whose matches leave nothing between them.
class ScannedPattern : public SplitPattern {
 public:
  explicit ScannedPattern(Match match) : match_(match) {}

  absl::StatusOr<std::vector<Span>> Matches(
      const std::vector<CodePoint>& points, Span piece) const override {
    const Scanner scanner(points, piece);
    std::vector<Span> matches;
    for (size_t i = piece.begin; i < piece.end;) {
      const size_t stop = match_(scanner, i);
      matches.push_back({i, stop});
      i = stop;
    }
    return matches;
  }

 private:
  const Match match_;
};

class TextPattern : public SplitPattern {
 public:
  explicit TextPattern(const std::string& text)
      : sought_(DecodeUtf8(text).value_or(std::vector<CodePoint>{})) {}

  absl::StatusOr<std::vector<Span>> Matches(
      const std::vector<CodePoint>& points, Span piece) const override {
    std::vector<Span> matches;
    const size_t size = sought_.size();
    if (size == 0) return matches;
    for (size_t i = piece.begin; i + size <= piece.end;) {
      size_t k = 0;
      while (k < size && points[i + k].value == sought_[k].value) ++k;
      if (k == size) matches.push_back({i, i + size});
      i += k == size ? size : 1;
    }
    return matches;
  }

 private:
  const std::vector<CodePoint> sought_;
};

absl::Status RefuseExpression(absl::string_view regex, absl::string_view part) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the expression '", regex, "': '", part, "' is not supported"));
}

// Returns the expression for ICU. Refuses constructs that ICU might read in
// another way than Oniguruma.
absl::StatusOr<std::string> ForIcu(const std::string& regex) {
  constexpr absl::string_view kGroups[] = {
      "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
  constexpr absl::string_view kEscaped = "\\.+*?()[]{}|^$-/\"'#&~!@%:;<>=,_` ";
  std::string icu;
  int classes = 0;
  for (absl::string_view rest = regex; !rest.empty();) {
    const char c = rest[0];
    if (c == '\\') {
      const char next = rest.size() > 1 ? rest[1] : '\0';
      size_t size = 2;
      if (next == 'p' || next == 'P') {
        size = rest.find('}') + 1;
        if (rest.size() < 3 || rest[2] != '{' || size == 0) {
          return RefuseExpression(regex, rest.substr(0, 2));
        }
        // Only general categories are accepted: blocks and scripts have other
        // names in ICU.
        absl::string_view name = rest.substr(3, size - 4);
        absl::ConsumePrefix(&name, "^");
        if (name.empty() || name.size() > 2 ||
            !absl::StrContains("LMNPSZC", name.substr(0, 1))) {
          return RefuseExpression(regex, rest.substr(0, size));
        }
      } else if (next == 'u' || next == 'x') {
        const size_t digits = next == 'u' ? 4 : 2;
        if (next == 'x' && rest.size() > 2 && rest[2] == '{') {
          size = rest.find('}') + 1;
        } else {
          size = 2 + digits;
        }
        if (size == 0 || size > rest.size()) {
          return RefuseExpression(regex, rest.substr(0, 2));
        }
      } else if (next == '\0' ||
                 (!absl::StrContains("sSdDrntfv", rest.substr(1, 1)) &&
                  kEscaped.find(next) == absl::string_view::npos)) {
        return RefuseExpression(regex, rest.substr(0, 2));
      }
      // ICU's \\s matches less white space.
      absl::StrAppend(&icu,
                      next == 's'   ? "\\p{White_Space}"
                      : next == 'S' ? "\\P{White_Space}"
                      : next == 'v' ? "\\x0B"
                                    : rest.substr(0, size));
      rest.remove_prefix(size);
      continue;
    }
    if (c == '[') {
      if (absl::StartsWith(rest, "[:")) {
        return RefuseExpression(regex, rest.substr(0, 2));
      }
      ++classes;
    } else if (c == ']' && classes > 0) {
      --classes;
    } else if (classes > 0) {
      // "--" is a difference in ICU; "&&" is an intersection in both.
      if (absl::StartsWith(rest, "--")) return RefuseExpression(regex, "--");
      // These characters have a meaning only in sets of ICU.
      if (c == '$' || c == '{' || c == '}') icu += '\\';
    } else if (absl::StartsWith(rest, "(?")) {
      bool is_known = false;
      for (const absl::string_view group : kGroups) {
        is_known |= absl::StartsWith(rest, group);
      }
      if (!is_known) return RefuseExpression(regex, rest.substr(0, 4));
    } else if (absl::StartsWith(rest, "}+")) {
      // This is possessive in ICU, and a second repetition in Oniguruma.
      return RefuseExpression(regex, "}+");
    }
    icu += c;
    rest.remove_prefix(1);
  }
  return icu;
}

class IcuPattern : public SplitPattern {
 public:
  static absl::StatusOr<std::unique_ptr<const SplitPattern>> Compile(
      const std::string& regex) {
    ASSIGN_OR_RETURN(const std::string icu, ForIcu(regex));
    UErrorCode error = U_ZERO_ERROR;
    UParseError where;
    std::unique_ptr<icu::RegexPattern> pattern(
        icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(icu),
                                   UREGEX_MULTILINE | UREGEX_UNIX_LINES,
                                   where,
                                   error));
    if (U_FAILURE(error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the expression '", regex, "' is not valid"));
    }
    return std::unique_ptr<const SplitPattern>(
        new IcuPattern(regex, std::move(pattern)));
  }

  absl::StatusOr<std::vector<Span>> Matches(
      const std::vector<CodePoint>& points, Span piece) const override {
    icu::UnicodeString text;
    // `places` maps each unit of the text to the index of its code point.
    std::vector<size_t> places;
    for (size_t i = piece.begin; i < piece.end; ++i) {
      text.append(static_cast<UChar32>(OldStandIn(points[i].value)));
      places.resize(static_cast<size_t>(text.length()), i);
    }
    places.push_back(piece.end);
    UErrorCode error = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(
        pattern_->matcher(text, error));
    std::vector<Span> matches;
    int32_t from = 0;
    int32_t last_end = -1;
    while (U_SUCCESS(error) && from <= text.length() &&
           matcher->find(from, error)) {
      const int32_t begin = matcher->start(error);
      const int32_t end = matcher->end(error);
      if (U_FAILURE(error)) break;
      if (begin == end && end == last_end) {
        // An empty match directly behind another match does not count.
        from = text.moveIndex32(end, 1);
        if (end == text.length()) break;
        continue;
      }
      matches.push_back({places[static_cast<size_t>(begin)],
                         places[static_cast<size_t>(end)]});
      from = end;
      last_end = end;
    }
    if (U_FAILURE(error)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the expression '", regex_, "' takes too much for a text"));
    }
    return matches;
  }

 private:
  IcuPattern(std::string regex, std::unique_ptr<icu::RegexPattern> pattern)
      : regex_(std::move(regex)), pattern_(std::move(pattern)) {}

  const std::string regex_;
  const std::unique_ptr<const icu::RegexPattern> pattern_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const SplitPattern>> SplitPattern::Parse(
    const nlohmann::json& json) {
  const auto field = [&](const char* key) -> const std::string* {
    if (!json.is_object() || json.size() != 1 || !json.contains(key)) {
      return nullptr;
    }
    return json[key].get_ptr<const std::string*>();
  };
  if (const std::string* text = field("String")) {
    return std::make_unique<const TextPattern>(*text);
  }
  const std::string* regex = field("Regex");
  if (regex == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pattern ", json.dump(), " is not supported"));
  }
  if (*regex == kQwenPattern) {
    return std::make_unique<const ScannedPattern>(
        [](const Scanner& s, size_t i) { return s.MatchModern(i, 1); });
  }
  if (*regex == kLlama3Pattern) {
    return std::make_unique<const ScannedPattern>(
        [](const Scanner& s, size_t i) { return s.MatchModern(i, 3); });
  }
  if (*regex == kTekkenPattern) {
    return std::make_unique<const ScannedPattern>(
        [](const Scanner& s, size_t i) { return s.MatchTekken(i); });
  }
  return IcuPattern::Compile(*regex);
}

const SplitPattern& ByteLevelPattern() {
  static const auto& pattern = *new ScannedPattern(
      [](const Scanner& s, size_t i) { return s.MatchGpt2(i); });
  return pattern;
}

}  // namespace dapd
