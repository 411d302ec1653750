#include "common/data/grading/latex_lexer.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace dapd {
namespace {

using Kind = LatexToken::Kind;
using Names = std::set<absl::string_view>;

constexpr size_t kMaxBytes = 4096;
// \text{} inside \text{}.
constexpr int kMaxNesting = 8;

// Commands that change the looks only.
const Names& Decorations() {
  static const auto& names = *new Names{
      "left",         "right",     "big",      "bigl",   "bigr",  "Big",
      "Bigl",         "Bigr",      "bigg",     "Bigg",   "quad",  "qquad",
      "limits",       "rm",        "mleft",    "mright", "it",    "bf",
      "displaystyle", "textstyle", "ldots",    "dots",   "cdots", "hfill",
      "boldsymbol",   "phantom",   "nolimits", "bm"};
  return names;
}

// Commands whose argument is prose, or letters in another type.
const Names& TextCommands() {
  static const auto& names = *new Names{"text",
                                        "textbf",
                                        "textit",
                                        "textrm",
                                        "textnormal",
                                        "mathrm",
                                        "mathbf",
                                        "mathit",
                                        "operatorname",
                                        "mbox",
                                        "hbox",
                                        "mathsf",
                                        "mathtt",
                                        "emph",
                                        "textsf",
                                        "texttt",
                                        "boxed",
                                        "fbox"};
  return names;
}

// Words of plain notation that are commands.
const Names& FunctionWords() {
  static const auto& names = *new Names{
      "sqrt", "sin",      "cos",    "tan",    "cot",    "sec", "csc", "sinh",
      "cosh", "tanh",     "arcsin", "arccos", "arctan", "log", "ln",  "exp",
      "frac", "infinity", "infty",  "pi",     "cup",    "cap"};
  return names;
}

// What may stand behind a number without a space in front of it.
const Names& Units() {
  static const auto& names = *new Names{
      "km",    "m",    "cm",   "mm",   "kg",  "g",       "mg",     "lb",
      "lbs",   "ft",   "feet", "foot", "in",  "inch",    "inches", "mph",
      "kmph",  "kmh",  "s",    "sec",  "min", "h",       "hr",     "hrs",
      "l",     "ml",   "am",   "pm",   "deg", "degrees", "degree", "cents",
      "units", "unit", "yd",   "st",   "nd",  "rd",      "th"};
  return names;
}

// The spelling of which the parser knows.
std::string Canonical(const std::string& name) {
  for (const auto& [from, to] : {std::pair("dfrac", "frac"),
                                 std::pair("tfrac", "frac"),
                                 std::pair("cfrac", "frac"),
                                 std::pair("dbinom", "binom"),
                                 std::pair("tbinom", "binom"),
                                 std::pair("asin", "arcsin"),
                                 std::pair("acos", "arccos"),
                                 std::pair("atan", "arctan"),
                                 std::pair("infinity", "infty"),
                                 std::pair("varnothing", "emptyset"),
                                 std::pair("lg", "log"),
                                 std::pair("union", "cup"),
                                 std::pair("degree", "circ"),
                                 std::pair("bmod", "mod"),
                                 std::pair("lvert", "vert"),
                                 std::pair("rvert", "vert"),
                                 std::pair("mid", "vert")}) {
    if (name == from) return to;
  }
  return name;
}

// Commands that stand for a symbol.
std::string SymbolOf(const std::string& name) {
  for (const auto& [command, symbol] :
       {std::pair("le", "<="),       std::pair("leq", "<="),
        std::pair("leqslant", "<="), std::pair("ge", ">="),
        std::pair("geq", ">="),      std::pair("geqslant", ">="),
        std::pair("ne", "!="),       std::pair("neq", "!="),
        std::pair("lt", "<"),        std::pair("gt", ">"),
        std::pair("cdot", "*"),      std::pair("times", "*"),
        std::pair("ast", "*"),       std::pair("div", "/"),
        std::pair("colon", ":"),     std::pair("approx", "="),
        std::pair("equiv", "="),     std::pair("lbrace", "\\{"),
        std::pair("rbrace", "\\}"),  std::pair("lbrack", "["),
        std::pair("rbrack", "]"),    std::pair("vert", "|")}) {
    if (name == command) return symbol;
  }
  return "";
}

const Names& GreekLetters() {
  static const auto& names = *new Names{
      "alpha", "beta",  "gamma", "delta", "epsilon", "varepsilon", "zeta",
      "eta",   "theta", "iota",  "kappa", "lambda",  "mu",         "nu",
      "xi",    "rho",   "sigma", "tau",   "upsilon", "phi",        "varphi",
      "chi",   "psi",   "omega", "Gamma", "Delta",   "Theta",      "Lambda",
      "Sigma", "Phi",   "Psi",   "Omega", "ell",     "hbar",       "Pi"};
  return names;
}

std::string ReplaceCharacters(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"\xE2\x88\x92", "-"},         // minus
                              {"\xE2\x80\x93", "-"},         // en dash
                              {"\xC3\x97", "*"},             // times
                              {"\xC2\xB7", "*"},             // middle dot
                              {"\xC3\xB7", "/"},             // division
                              {"\xCF\x80", "\\pi "},         // pi
                              {"\xE2\x88\x9A", "\\sqrt "},   // root
                              {"\xC2\xB0", "^\\circ "},      // degree
                              {"\xE2\x88\x9E", "\\infty "},  // infinity
                              {"\xE2\x89\xA4", "\\le "},
                              {"\xE2\x89\xA5", "\\ge "},
                              {"\xE2\x89\xA0", "\\ne "},
                              {"\xE2\x88\xAA", "\\cup "},
                              {"\xE2\x88\x88", "\\in "},
                              {"\xC2\xB1", "\\pm "},
                              {"\xE2\x82\xAC", ""},  // euro
                              {"\xC2\xA3", ""},      // pound
                              {"\xC2\xA0", " "},
                              {"**", "^"},
                              {"{,}", ","},
                              {"\\!", ""}});
}

bool IsDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool IsLetter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
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
      } else if (IsDigit(c) || (c == '.' && IsDigit(Next(1)))) {
        LexNumber();
      } else if (c == '\\') {
        if (!LexCommand()) return false;
      } else if (IsLetter(c) || (c & 0x80) != 0) {
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

  void LexNumber() {
    std::string digits;
    while (IsDigit(Next(0))) digits.push_back(text_[at_++]);
    // 1,234,567: groups of three behind at most three digits, no leading 0.
    if (commas_ == Commas::kThousands && !digits.empty() &&
        digits.size() <= 3 && digits[0] != '0') {
      while (Next(0) == ',' && ThreeDigitsAt(at_ + 1)) {
        absl::StrAppend(&digits, text_.substr(at_ + 1, 3));
        at_ += 4;
      }
    }
    if (Next(0) == '.' && IsDigit(Next(1))) {
      digits.push_back(text_[at_++]);
      while (IsDigit(Next(0))) digits.push_back(text_[at_++]);
    }
    Add(Kind::kNumber, std::move(digits));
    LexExponent();
  }

  // The exponent of 6.02e23 becomes " * 10 ^ { 23 }".
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
           (IsLetter(text_[at_]) || (text_[at_] & 0x80) != 0)) {
      ++at_;
    }
    const std::string word(text_.substr(begin, at_ - begin));
    if (FunctionWords().contains(word)) {
      Add(Kind::kCommand, Canonical(word));
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

  // The text in the braces at at_, which is left behind them.
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
    if (!IsLetter(c)) {
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
    while (IsLetter(Next(0))) name.push_back(text_[at_++]);
    if (Decorations().contains(name)) {
      // "\left." closes what nothing opened.
      if ((name == "left" || name == "right") && Next(0) == '.') ++at_;
      return true;
    }
    if (TextCommands().contains(name)) return LexText();
    if (name == "begin" || name == "end") {
      const auto environment = Argument();
      if (!environment.has_value()) return false;
      Add(Kind::kCommand, name);
      return true;
    }
    if (const std::string symbol = SymbolOf(Canonical(name)); !symbol.empty()) {
      Add(Kind::kSymbol, symbol);
    } else if (GreekLetters().contains(name)) {
      Add(Kind::kLetter, absl::AsciiStrToLower(absl::StrCat("\\", name)));
    } else if (name == "mathbb" || name == "mathcal" || name == "overline" ||
               name == "vec" || name == "hat" || name == "bar" ||
               name == "widehat" || name == "overrightarrow") {
      return LexAccent(name);
    } else {
      Add(Kind::kCommand, Canonical(name));
    }
    return true;
  }

  // \text{...}: words, a unit, "and", or mathematics in another type.
  bool LexText() {
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
      // "A", "(B)", "5", ",": but a single letter behind a number is a unit.
      const bool is_unit =
          inner.size() == 1 && inner[0].kind == Kind::kLetter &&
          !tokens_->empty() &&
          (tokens_->back().kind == Kind::kNumber ||
           tokens_->back() == LatexToken{Kind::kCommand, "circ"});
      if (is_unit) inner[0].kind = Kind::kText;
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

  // A letter with something above it, or of another alphabet, is one variable;
  // digits under a line repeat.
  bool LexAccent(const std::string& name) {
    const auto argument = Argument();
    if (!argument.has_value()) return true;
    std::string plain;
    for (const char c : *argument) {
      if (c != ' ') plain.push_back(c);
    }
    const bool is_repeating =
        name == "overline" && !tokens_->empty() && !space_ &&
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

bool IsSymbol(const LatexToken& token, absl::string_view text) {
  return token.kind == Kind::kSymbol && token.text == text;
}

// Index behind which the tokens are an exponent ("^2", "^{2}"); their number if
// they are not.
size_t BeforeExponent(const std::vector<LatexToken>& tokens) {
  const size_t n = tokens.size();
  if (n >= 2 && tokens[n - 1].kind == Kind::kNumber &&
      IsSymbol(tokens[n - 2], "^")) {
    return n - 2;
  }
  if (n >= 4 && IsSymbol(tokens[n - 1], "}") &&
      tokens[n - 2].kind == Kind::kNumber && IsSymbol(tokens[n - 3], "{") &&
      IsSymbol(tokens[n - 4], "^")) {
    return n - 4;
  }
  return n;
}

// Whether the words at `at` can be a unit of what stands before them.
bool IsUnit(const std::vector<LatexToken>& tokens, size_t at) {
  if (at == 0) return false;
  const LatexToken& unit = tokens[at];
  const LatexToken& before = tokens[at - 1];
  if (IsSymbol(before, "/")) {
    return at >= 2 && Units().contains(unit.text) && IsUnit(tokens, at - 2);
  }
  const bool after_number = before.kind == Kind::kNumber ||
                            IsSymbol(before, "}") || IsSymbol(before, ")");
  switch (unit.kind) {
    case Kind::kText:
      return true;
    case Kind::kWord:
      return after_number && (Units().contains(unit.text) ||
                              (unit.after_space && unit.text.size() > 2));
    case Kind::kLetter:
      return after_number && unit.after_space && Units().contains(unit.text);
    case Kind::kNumber:
    case Kind::kCommand:
    case Kind::kSymbol:
      return false;
  }
  return false;
}

// Drops units ("12 km", "3 m^2", "5 \text{ apples}") and sentence ends.
void DropUnits(std::vector<LatexToken>* tokens) {
  while (!tokens->empty()) {
    if (IsSymbol(tokens->back(), ".") || IsSymbol(tokens->back(), ",") ||
        IsSymbol(tokens->back(), "?")) {
      tokens->pop_back();
      continue;
    }
    const size_t end = BeforeExponent(*tokens);
    if (end == 0 || !IsUnit(*tokens, end - 1)) return;
    tokens->resize(end - 1);
    // "60 km/h".
    if (!tokens->empty() && IsSymbol(tokens->back(), "/")) tokens->pop_back();
  }
}

// "^\circ" and "^{\circ}" behind what is measured in degrees.
void DropDegrees(std::vector<LatexToken>* tokens) {
  std::vector<LatexToken> kept;
  for (size_t i = 0; i < tokens->size(); ++i) {
    const auto is_circle = [&](size_t at) {
      return at < tokens->size() && (*tokens)[at].kind == Kind::kCommand &&
             (*tokens)[at].text == "circ";
    };
    if (IsSymbol((*tokens)[i], "^") && is_circle(i + 1)) {
      i += 1;
    } else if (IsSymbol((*tokens)[i], "^") && i + 3 < tokens->size() &&
               IsSymbol((*tokens)[i + 1], "{") && is_circle(i + 2) &&
               IsSymbol((*tokens)[i + 3], "}")) {
      i += 3;
    } else if (!is_circle(i)) {
      kept.push_back((*tokens)[i]);
    }
  }
  *tokens = std::move(kept);
}

// What is left of words inside mathematics are products of letters.
std::vector<LatexToken> SplitWords(const std::vector<LatexToken>& tokens) {
  std::vector<LatexToken> split;
  for (const LatexToken& token : tokens) {
    if (token.kind != Kind::kText && token.kind != Kind::kWord) {
      split.push_back(token);
    } else if (std::any_of(token.text.begin(), token.text.end(), [](char c) {
                 return (c & 0x80) != 0;
               })) {
      split.push_back({Kind::kLetter, token.text, false});
    } else {
      for (const char c : token.text) {
        if (!IsLetter(c)) continue;
        split.push_back({Kind::kLetter, std::string(1, c), false});
      }
    }
  }
  return split;
}

// The letters of a text answer; empty if the tokens are more than words.
std::string LettersOf(const std::vector<LatexToken>& tokens) {
  std::string letters;
  for (const LatexToken& token : tokens) {
    if (token.kind == Kind::kText || token.kind == Kind::kWord ||
        token.kind == Kind::kLetter) {
      for (const char c : token.text) {
        if (IsLetter(c) || (c & 0x80) != 0) letters.push_back(c);
      }
    } else if (token.kind != Kind::kSymbol ||
               !absl::StrContains("().,-", token.text)) {
      return "";
    }
  }
  return letters;
}

bool HasProse(const std::vector<LatexToken>& tokens) {
  constexpr size_t kLongestProduct = 3;
  return std::any_of(tokens.begin(), tokens.end(), [](const LatexToken& token) {
    return token.kind == Kind::kText ||
           (token.kind == Kind::kWord && token.text.size() > kLongestProduct);
  });
}

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
