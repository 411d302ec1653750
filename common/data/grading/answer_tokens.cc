#include "common/data/grading/answer_tokens.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace dapd {
namespace {

using Kind = LatexToken::Kind;

// A number may have one of these units without a space between them.
const std::set<absl::string_view>& Units() {
  static const auto& names = *new std::set<absl::string_view>{
      "km",    "m",    "cm",   "mm",   "kg",  "g",       "mg",     "lb",
      "lbs",   "ft",   "feet", "foot", "in",  "inch",    "inches", "mph",
      "kmph",  "kmh",  "s",    "sec",  "min", "h",       "hr",     "hrs",
      "l",     "ml",   "am",   "pm",   "deg", "degrees", "degree", "cents",
      "units", "unit", "yd",   "st",   "nd",  "rd",      "th"};
  return names;
}

bool IsSymbol(const LatexToken& token, absl::string_view text) {
  return token.kind == Kind::kSymbol && token.text == text;
}

// Recognizes a \text{}, or a word that is too long for a product of letters.
bool IsProse(const LatexToken& token) {
  constexpr size_t kLongestProduct = 3;
  return token.kind == Kind::kText ||
         (token.kind == Kind::kWord && token.text.size() > kLongestProduct);
}

bool IsCommand(const LatexToken& token, absl::string_view name) {
  return token.kind == Kind::kCommand && token.text == name;
}

bool IsName(const LatexToken& token) {
  return token.kind == Kind::kLetter || token.kind == Kind::kWord;
}

// Recognizes a number, or degrees: "^\circ", "^{\circ}".
bool EndsInNumber(const std::vector<LatexToken>& tokens) {
  const size_t n = tokens.size();
  return tokens[n - 1].kind == Kind::kNumber ||
         IsCommand(tokens[n - 1], "circ") ||
         (n > 1 && IsSymbol(tokens[n - 1], "}") &&
          IsCommand(tokens[n - 2], "circ"));
}

bool EndsInValue(const std::vector<LatexToken>& tokens) {
  const LatexToken& last = tokens.back();
  return EndsInNumber(tokens) || IsSymbol(last, "}") || IsSymbol(last, ")") ||
         IsCommand(last, "pi");
}

// Recognizes units with their exponents and the symbols that join them.
bool AreUnits(const std::vector<LatexToken>& tokens) {
  return std::ranges::all_of(tokens, [](const LatexToken& token) {
    switch (token.kind) {
      case Kind::kLetter:
      case Kind::kWord:
        return Units().contains(token.text);
      case Kind::kNumber:
        return true;
      case Kind::kSymbol:
        return absl::StrContains("/^{}", token.text);
      case Kind::kText:
      case Kind::kCommand:
        return false;
    }
    return false;
  });
}

// Returns the index of the exponent at the end of the tokens ("^2", "^{2}"), or
// the number of tokens if they end with no exponent.
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

// Returns whether the token at `at` can be a unit of the tokens before it.
bool IsUnit(const std::vector<LatexToken>& tokens, size_t at) {
  if (at == 0) return false;
  const LatexToken& unit = tokens[at];
  const LatexToken& before = tokens[at - 1];
  if (IsSymbol(before, "/")) {
    return at >= 2 &&
           (unit.kind == Kind::kText || Units().contains(unit.text)) &&
           IsUnit(tokens, at - 2);
  }
  const bool after_number = before.kind == Kind::kNumber ||
                            IsSymbol(before, "}") || IsSymbol(before, ")");
  switch (unit.kind) {
    case Kind::kText:
      // Behind a comma the text is another part of the answer.
      return !IsSymbol(before, ",");
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

}  // namespace

void MarkUnits(const std::vector<LatexToken>& before,
               std::vector<LatexToken>* text) {
  if (before.empty() || text->empty() || !IsName(text->front())) return;
  const std::string& first = text->front().text;
  const bool is_letter = text->size() == 1 && first != "i" && first != "e";
  if (!(is_letter && EndsInNumber(before)) &&
      !(AreUnits(*text) && EndsInValue(before))) {
    return;
  }
  for (LatexToken& token : *text) {
    if (IsName(token)) token.kind = Kind::kText;
  }
}

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

void DropUnitsAtEnd(std::vector<LatexToken>* tokens) {
  while (!tokens->empty()) {
    if (IsSymbol(tokens->back(), ".") || IsSymbol(tokens->back(), ",") ||
        IsSymbol(tokens->back(), "?")) {
      tokens->pop_back();
      continue;
    }
    const size_t end = BeforeExponent(*tokens);
    if (end == 0 || !IsUnit(*tokens, end - 1)) return;
    tokens->resize(end - 1);
    // Example: "60 km/h".
    if (!tokens->empty() && IsSymbol(tokens->back(), "/")) tokens->pop_back();
  }
}

void DropUnits(std::vector<LatexToken>* tokens) {
  DropUnitsAtEnd(tokens);
  std::vector<LatexToken> kept;
  std::vector<LatexToken> item;
  int depth = 0;
  for (const LatexToken& token : *tokens) {
    const bool is_symbol = token.kind == Kind::kSymbol;
    if (is_symbol && absl::StrContains("([\\{", token.text)) ++depth;
    if (is_symbol && absl::StrContains(")]\\}", token.text)) --depth;
    if (depth == 0 && IsSymbol(token, ",")) {
      const size_t end = BeforeExponent(item);
      // "2 m, 3 t" are products as well.
      if (end > 0 && item[end - 1].kind != Kind::kLetter) DropUnitsAtEnd(&item);
      kept.insert(kept.end(), item.begin(), item.end());
      item.clear();
      kept.push_back(token);
    } else {
      item.push_back(token);
    }
  }
  kept.insert(kept.end(), item.begin(), item.end());
  *tokens = std::move(kept);
}

std::vector<LatexToken> SplitWords(const std::vector<LatexToken>& tokens) {
  std::vector<LatexToken> split;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const LatexToken& token = tokens[i];
    const bool is_name =
        IsProse(token) && i + 1 < tokens.size() &&
        (IsSymbol(tokens[i + 1], "=") || IsSymbol(tokens[i + 1], "~="));
    if (token.kind != Kind::kText && token.kind != Kind::kWord) {
      split.push_back(token);
    } else if (is_name || std::any_of(token.text.begin(),
                                      token.text.end(),
                                      [](char c) { return (c & 0x80) != 0; })) {
      split.push_back({Kind::kLetter, token.text, false});
    } else {
      for (const char c : token.text) {
        if (!absl::ascii_isalpha(c)) continue;
        split.push_back({Kind::kLetter, std::string(1, c), false});
      }
    }
  }
  return split;
}

std::string LettersOf(const std::vector<LatexToken>& tokens) {
  std::string letters;
  for (const LatexToken& token : tokens) {
    if (token.kind == Kind::kText || token.kind == Kind::kWord ||
        token.kind == Kind::kLetter) {
      for (const char c : token.text) {
        if (absl::ascii_isalpha(c) || (c & 0x80) != 0) letters.push_back(c);
      }
    } else if (token.kind != Kind::kSymbol ||
               !absl::StrContains("().,-", token.text)) {
      return "";
    }
  }
  return letters;
}

bool HasProse(const std::vector<LatexToken>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), IsProse);
}

}  // namespace dapd
