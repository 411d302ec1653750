#include "common/data/grading/latex_lexer.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/data/grading/answer_tokens.h"
#include "common/data/grading/latex_names.h"

namespace dapd {
namespace {

using Kind = LatexToken::Kind;

constexpr size_t kMaxBytes = 4096;
// A \text{} may be nested in others to this depth.
constexpr int kMaxNesting = 8;

bool IsDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
class Lexer {
 public:
  Lexer(absl::string_view text, Commas commas, int nesting)
      : text_(text), commas_(commas), nesting_(nesting) {}

  bool Run(std::vector<LatexToken>* tokens) {
    tokens_ = tokens;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '~') {
        space_ = true;
        ++at_;
      } else if (IsDigit(c) || (c == '.' && StartsDecimals(at_ + 1))) {
        LexNumber();
      } else if (c == '\\') {
        if (!LexCommand()) return false;
      } else if (absl::ascii_isalpha(c) || (c & 0x80) != 0) {
        LexWord();
      } else {
        LexSymbol();
      }
    }
    return true;
  }

 private:
  char Next(size_t offset) const {
    return at_ + offset < text_.size() ? text_[at_ + offset] : '\0';
  }

  void Add(Kind kind, std::string text) {
    tokens_->push_back({kind, std::move(text), space_});
    space_ = false;
  }

  bool ThreeDigitsAt(size_t begin) const {
    if (begin + 3 > text_.size()) return false;
    for (size_t i = begin; i < begin + 3; ++i) {
      if (!IsDigit(text_[i])) return false;
    }
    return begin + 3 == text_.size() || !IsDigit(text_[begin + 3]);
  }

  // Returns whether a digit, or a line above repeating digits, begins at `at`.
  bool StartsDecimals(size_t at) const {
    const absl::string_view rest = text_.substr(at);
    return !rest.empty() &&
           (IsDigit(rest[0]) || absl::StartsWith(rest, "\\overline") ||
            absl::StartsWith(rest, "\\bar"));
  }

  // Returns the position behind the blanks at at_; at_ itself if there are
  // none.
  size_t BehindSpace() const {
    size_t at = at_;
    while (at < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at])) != 0 ||
          text_[at] == '~') {
        ++at;
      } else if (text_[at] == '\\' && at + 1 < text_.size() &&
                 absl::StrContains(",;: ", text_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  // Reads 1 234 567 and 1\,234\,567; but "2 100/301" is a mixed number.
  void JoinSpacedGroups(std::string* digits) {
    for (size_t begin = BehindSpace();
         begin > at_ && ThreeDigitsAt(begin) &&
         (begin + 3 == text_.size() || text_[begin + 3] != '/');
         begin = BehindSpace()) {
      absl::StrAppend(digits, text_.substr(begin, 3));
      at_ = begin + 3;
    }
  }

  void LexNumber() {
    std::string digits;
    while (IsDigit(Next(0))) digits.push_back(text_[at_++]);
    // 1,234,567: groups of three digits follow at most three digits without a
    // leading 0.
    if (!digits.empty() && digits.size() <= 3 && digits[0] != '0') {
      if (commas_ == Commas::kThousands && Next(0) == ',') {
        while (Next(0) == ',' && ThreeDigitsAt(at_ + 1)) {
          absl::StrAppend(&digits, text_.substr(at_ + 1, 3));
          at_ += 4;
        }
      } else {
        JoinSpacedGroups(&digits);
      }
    }
    if (Next(0) == '.' && StartsDecimals(at_ + 1)) {
      if (digits.empty()) digits = "0";
      digits.push_back(text_[at_++]);
      while (IsDigit(Next(0))) digits.push_back(text_[at_++]);
    }
    Add(Kind::kNumber, std::move(digits));
    LexExponent();
  }

  // Turns the exponent of 6.02e23 into " * 10 ^ { 23 }".
  void LexExponent() {
    if (Next(0) != 'e' && Next(0) != 'E') return;
    const bool has_sign = Next(1) == '-' || Next(1) == '+';
    size_t end = at_ + (has_sign ? 2 : 1);
    const size_t begin = end;
    while (end < text_.size() && IsDigit(text_[end])) ++end;
    if (end == begin || end - begin > 5) return;
    const std::string digits(text_.substr(begin, end - begin));
    const bool is_negative = Next(1) == '-';
    at_ = end;
    Add(Kind::kSymbol, "*");
    Add(Kind::kNumber, "10");
    Add(Kind::kSymbol, "^");
    Add(Kind::kSymbol, "{");
    if (is_negative) Add(Kind::kSymbol, "-");
    Add(Kind::kNumber, digits);
    Add(Kind::kSymbol, "}");
  }

  void LexWord() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (absl::ascii_isalpha(text_[at_]) || (text_[at_] & 0x80) != 0)) {
      ++at_;
    }
    const std::string word(text_.substr(begin, at_ - begin));
    if (FunctionWords().contains(word)) {
      Add(Kind::kCommand, CanonicalCommand(word));
    } else if (word == "and" || word == "or") {
      Add(Kind::kSymbol, ",");
    } else if (absl::EqualsIgnoreCase(word, "percent")) {
      Add(Kind::kSymbol, "%");
    } else {
      Add(word.size() == 1 ? Kind::kLetter : Kind::kWord,
          absl::AsciiStrToLower(word));
    }
  }

  void LexSymbol() {
    const char c = text_[at_++];
    if (c == '$' || c == '"' || c == '\'' || c == '`') return;
    const char next = Next(0);
    if ((c == '<' || c == '>' || c == '!') && next == '=') {
      ++at_;
      Add(Kind::kSymbol, std::string{c, '='});
    } else if (c == ';') {
      Add(Kind::kSymbol, ",");
    } else {
      Add(Kind::kSymbol, std::string(1, c));
    }
  }

  // Returns the text in the braces at at_, and moves at_ behind the braces.
  std::optional<absl::string_view> Argument() {
    while (Next(0) == ' ') ++at_;
    if (Next(0) != '{') return std::nullopt;
    int depth = 0;
    const size_t begin = at_ + 1;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == '{') {
        ++depth;
      } else if (text_[at_] == '}' && --depth == 0) {
        ++at_;
        return text_.substr(begin, at_ - 1 - begin);
      }
    }
    return std::nullopt;
  }

  bool LexCommand() {
    ++at_;
    const char c = Next(0);
    if (!absl::ascii_isalpha(c)) {
      if (c != '\0') ++at_;
      if (c == '{' || c == '}' || c == '\\') {
        Add(Kind::kSymbol, std::string{'\\', c});
      } else if (c == '%' || c == '|' || c == '&' || c == '#' || c == '_') {
        Add(Kind::kSymbol, std::string(1, c));
      } else {
        space_ = true;  // \, \; \: \$ and "\ "
      }
      return true;
    }
    std::string name;
    while (absl::ascii_isalpha(Next(0))) name.push_back(text_[at_++]);
    if (Decorations().contains(name)) {
      // "\left." and "\right." stand for a missing bracket.
      if ((name == "left" || name == "right") && Next(0) == '.') ++at_;
      return true;
    }
    if (TextCommands().contains(name)) return LexText(name);
    if (name == "begin" || name == "end") {
      const auto environment = Argument();
      if (!environment.has_value()) return false;
      // Skips the column description of an array.
      if (name == "begin" && *environment == "array" && Next(0) == '{' &&
          !Argument().has_value()) {
        return false;
      }
      Add(Kind::kCommand, name);
      return true;
    }
    if (const std::string symbol = SymbolOfCommand(CanonicalCommand(name));
        !symbol.empty()) {
      Add(Kind::kSymbol, symbol);
    } else if (GreekLetters().contains(name)) {
      Add(Kind::kLetter, absl::AsciiStrToLower(absl::StrCat("\\", name)));
    } else if (name == "mathbb" || name == "mathcal" || name == "overline" ||
               name == "vec" || name == "hat" || name == "bar" ||
               name == "widehat" || name == "overrightarrow") {
      return LexAccent(name);
    } else {
      Add(Kind::kCommand, CanonicalCommand(name));
    }
    return true;
  }

  // Reads \text{...}: words, a unit, "and", or mathematics in another font.
  bool LexText(const std::string& name) {
    const auto argument = Argument();
    if (!argument.has_value()) return false;
    if (nesting_ >= kMaxNesting) return false;
    std::vector<LatexToken> inner;
    if (!Lexer(*argument, commas_, nesting_ + 1).Run(&inner)) return false;
    const bool has_prose =
        std::any_of(inner.begin(), inner.end(), [](const LatexToken& token) {
          return token.kind == Kind::kText || token.kind == Kind::kWord;
        });
    const bool has_digit =
        std::any_of(inner.begin(), inner.end(), [](const LatexToken& token) {
          return token.kind == Kind::kNumber;
        });
    if (!has_prose || has_digit) {
      // The text is "A", "(B)", "5" or ","; bold and slanted letters are not
      // units.
      if (UprightCommands().contains(name)) MarkUnits(*tokens_, &inner);
      tokens_->insert(tokens_->end(), inner.begin(), inner.end());
      return true;
    }
    std::string words;
    for (const LatexToken& token : inner) {
      if (token.kind != Kind::kSymbol && token.kind != Kind::kCommand) {
        absl::StrAppend(&words, words.empty() ? "" : " ", token.text);
      }
    }
    Add(Kind::kText, words);
    return true;
  }

  // A letter with an accent, or of another alphabet, is one variable. Digits
  // under a line repeat.
  bool LexAccent(const std::string& name) {
    while (Next(0) == ' ') ++at_;
    std::string plain;
    if (IsDigit(Next(0)) || absl::ascii_isalpha(Next(0))) {
      plain.push_back(text_[at_++]);
    } else {
      const auto argument = Argument();
      if (!argument.has_value()) return true;
      for (const char c : *argument) {
        if (c != ' ') plain.push_back(c);
      }
    }
    const bool is_repeating =
        (name == "overline" || name == "bar") && !tokens_->empty() && !space_ &&
        tokens_->back().kind == Kind::kNumber && !plain.empty() &&
        std::all_of(plain.begin(), plain.end(), IsDigit);
    if (is_repeating) {
      Add(Kind::kCommand, "repeating");
      Add(Kind::kNumber, plain);
    } else {
      Add(Kind::kLetter,
          absl::AsciiStrToLower(absl::StrCat("\\", name, plain)));
    }
    return true;
  }

  absl::string_view text_;
  const Commas commas_;
  const int nesting_;
  size_t at_ = 0;
  bool space_ = false;
  std::vector<LatexToken>* tokens_ = nullptr;
};

}  // namespace

std::optional<LexedAnswer> LexLatex(absl::string_view text, Commas commas) {
  if (text.size() > kMaxBytes) return std::nullopt;
  const std::string plain = ReplaceCharacters(text);
  LexedAnswer answer;
  if (!Lexer(plain, commas, 0).Run(&answer.tokens)) return std::nullopt;
  DropDegrees(&answer.tokens);
  answer.letters = LettersOf(answer.tokens);
  answer.is_prose = !answer.letters.empty() && HasProse(answer.tokens);
  if (!answer.is_prose) DropUnits(&answer.tokens);
  answer.tokens = SplitWords(answer.tokens);
  return answer;
}

}  // namespace dapd
