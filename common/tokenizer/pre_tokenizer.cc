#include "common/tokenizer/pre_tokenizer.h"

#include "absl/strings/str_cat.h"

#include "common/base/json.h"

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

// [^\r\n\p{L}\p{N}], of which one may stand in front of a word.
bool IsWordPrefix(int32_t c) {
  return !IsNewline(c) && !IsLetter(c) && !IsNumber(c);
}

// ASCII lower case, and U+017F, the long s, which folds to s.
int32_t Fold(int32_t c) {
  if (c >= 'A' && c <= 'Z') return c - 'A' + 'a';
  return c == 0x17F ? 's' : c;
}

// Scans one piece; every Match* returns the end of a match at `i` or `i`.
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

  // " ?" in front of one or more members.
  template <typename Class>
  size_t MatchSpaced(size_t i, Class is_member) const {
    const size_t start = At(i) == ' ' ? i + 1 : i;
    const size_t stop = start < end_ ? Run(start, is_member) : start;
    return stop > start ? stop : i;
  }

  // \s+(?!\S)|\s+ at white space.
  size_t MatchSpace(size_t i) const {
    const size_t stop = Run(i, IsWhitespace);
    return stop < end_ && stop - i > 1 ? stop - 1 : stop;
  }

  // "[capital or uncased]*[small or uncased]+".
  size_t MatchEndingSmall(size_t i) const {
    const size_t capitals_end = Run(i, IsCapitalOrUncased);
    const size_t stop = Run(capitals_end, IsSmallOrUncased);
    if (stop > capitals_end) return stop;
    // The first part gives back as much as the second needs.
    for (size_t k = capitals_end; k > i; --k) {
      if (IsSmallOrUncased(At(k - 1))) return k;
    }
    return i;
  }

  // " ?[^\s\p{L}\p{N}]+[may follow]*|\s*[\r\n]+|\s+(?!\S)|\s+" at what is
  // neither letter nor number.
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

  // The expression of Qwen and Llama 3.
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

  // The expression of tekken.
  size_t MatchTekken(size_t i) const {
    const int32_t c = At(i);
    const size_t word = IsWordPrefix(c) ? i + 1 : i;
    size_t stop = MatchEndingSmall(word);
    if (stop > word) return stop;
    // A mark is a prefix and part of a word.
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

  // Every number by itself, everything between as it is.
  size_t MatchDigit(size_t i) const {
    if (IsNumber(At(i))) return i + 1;
    return Run(i, [](int32_t c) { return !IsNumber(c); });
  }

 private:
  int32_t At(size_t i) const { return points_[i].value; }

  const std::vector<CodePoint>& points_;
  const size_t end_;
};

absl::Status RefusePreTokenizer(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("pre_tokenizer: ", what, " is not supported"));
}

// `to_bytes`: whether a part before this one was ByteLevel, which writes bytes
// as letters: what comes after it would cut these and not the text.
absl::Status AddRules(const nlohmann::json& json,
                      std::vector<PreTokenizer::Rule>& rules,
                      bool& to_bytes) {
  using Rule = PreTokenizer::Rule;
  if (!json.is_object()) return RefusePreTokenizer(json.dump());
  const std::string type = json.value("type", std::string());
  if (type == "Sequence") {
    for (const nlohmann::json& part :
         json.value("pretokenizers", nlohmann::json::array())) {
      absl::Status status = AddRules(part, rules, to_bytes);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  if (to_bytes)
    return RefusePreTokenizer(absl::StrCat("'", type, "' after ByteLevel"));
  if (type == "Split") {
    const nlohmann::json pattern = json.value("pattern", nlohmann::json());
    const std::string regex =
        pattern.is_object() ? pattern.value("Regex", std::string()) : "";
    const std::string behavior = json.value("behavior", std::string());
    if (json.value("invert", false))
      return RefusePreTokenizer("Split with invert");
    if (behavior != "Isolated" && behavior != "isolated") {
      return RefusePreTokenizer(
          absl::StrCat("Split with behavior '", behavior, "'"));
    }
    if (regex == kQwenPattern) {
      rules.push_back(Rule::kQwen);
    } else if (regex == kLlama3Pattern) {
      rules.push_back(Rule::kLlama3);
    } else if (regex == kTekkenPattern) {
      rules.push_back(Rule::kTekken);
    } else {
      return RefusePreTokenizer(
          absl::StrCat("the expression ", pattern.dump()));
    }
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    if (json.value("add_prefix_space", true)) {
      return RefusePreTokenizer("ByteLevel with add_prefix_space");
    }
    to_bytes = true;
    if (json.value("use_regex", true)) rules.push_back(Rule::kGpt2);
    return absl::OkStatus();
  }
  if (type == "Digits") {
    if (!json.value("individual_digits", false)) {
      return RefusePreTokenizer("Digits without individual_digits");
    }
    rules.push_back(Rule::kSingleDigits);
    return absl::OkStatus();
  }
  return RefusePreTokenizer(absl::StrCat("type '", type, "'"));
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Parse(const nlohmann::json& json) {
  PreTokenizer result;
  bool to_bytes = false;
  absl::Status status = AddRules(json, result.rules_, to_bytes);
  if (!status.ok()) return status;
  if (!to_bytes) return RefusePreTokenizer("one without ByteLevel");
  return result;
}

std::vector<Span> PreTokenizer::Split(
    const std::vector<CodePoint>& points) const {
  std::vector<Span> pieces;
  if (points.empty()) return pieces;
  pieces.push_back({0, points.size()});
  for (const Rule rule : rules_) {
    std::vector<Span> cut;
    for (const Span piece : pieces) {
      const Scanner scanner(points, piece);
      for (size_t i = piece.begin; i < piece.end;) {
        size_t stop = i;
        switch (rule) {
          case Rule::kQwen:
            stop = scanner.MatchModern(i, 1);
            break;
          case Rule::kLlama3:
            stop = scanner.MatchModern(i, 3);
            break;
          case Rule::kTekken:
            stop = scanner.MatchTekken(i);
            break;
          case Rule::kGpt2:
            stop = scanner.MatchGpt2(i);
            break;
          case Rule::kSingleDigits:
            stop = scanner.MatchDigit(i);
            break;
        }
        cut.push_back({i, stop});
        i = stop;
      }
    }
    pieces = std::move(cut);
  }
  return pieces;
}

}  // namespace dapd
