// The tokens of an answer in LaTeX or plain notation. What only decorates
// (dollar signs, spaces, \left, \displaystyle, units at the end) is left out;
// different spellings of one thing become one token.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

struct LatexToken {
  enum class Kind {
    kNumber,   // "12", "1.5", "0.": no thousands separators any more
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

// An answer's tokens, words split into letters.
struct LexedAnswer {
  std::vector<LatexToken> tokens;
  // Where the answer is words and not mathematics ("no solution", "(Paris)"):
  // its letters in lower case, without spaces and punctuation.
  std::string letters;
  bool is_prose = false;
};

// What the comma of "10,100" is: in an answer such as "(10,100)" both.
enum class Commas { kThousands, kSeparators };

// Nothing if the text is too long (4,096 bytes) or the braces behind a command
// such as \text are not closed: then it is no mathematics that can be compared.
std::optional<LexedAnswer> LexLatex(absl::string_view text, Commas commas);

}  // namespace dapd
