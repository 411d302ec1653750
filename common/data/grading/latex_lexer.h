// Splits an answer in LaTeX or plain notation into tokens. Decorations (dollar
// signs, spaces, \left, \displaystyle, units at the end) are left out;
// different spellings of a symbol become the same token.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

struct LatexToken {
  enum class Kind {
    kNumber,   // "12", "1.5", "0.", without thousands separators
    kLetter,   // a variable or constant: "x", "\\alpha", in lower case
    kCommand,  // "frac", "sqrt", "sin", "cup", "infty", ...
    kText,     // the words of \text{}, in lower case, one space between two
    kWord,     // several letters in a row elsewhere, in lower case
    kSymbol,   // one character, or "<=", ">=", "!=", "~=", "\\{", "\\}", "\\\\"
  };
  Kind kind = Kind::kSymbol;
  std::string text;
  bool after_space = false;

  bool operator==(const LatexToken& other) const {
    return kind == other.kind && text == other.text;
  }
};

// Holds the tokens of an answer, with words split into letters.
struct LexedAnswer {
  std::vector<LatexToken> tokens;
  // The answer's letters in lower case, without spaces and punctuation, if it
  // consists of words and not of mathematics ("no solution", "(Paris)").
  std::string letters;
  bool is_prose = false;
};

// Decides the meaning of the comma in "10,100"; an answer such as "(10,100)" is
// read with both meanings.
enum class Commas { kThousands, kSeparators };

// Returns nothing if the text is too long (4,096 bytes), or if the braces
// behind a command such as \text are not closed: it is not comparable
// mathematics then.
std::optional<LexedAnswer> LexLatex(absl::string_view text, Commas commas);

}  // namespace dapd
