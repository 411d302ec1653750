// Parses the sums in an answer and computes their values (math_value.h):
//
//   ratio     = sum { ":" sum }
//   sum       = terms [("\over" | "\choose") sum]
//   terms     = ["+" | "-" | "\pm"] product { ("+" | "-" | "\pm") product }
//   product   = power { ["*" | "/"] power }
//   power     = primary { "!" | "%" | "^" script }
//
// A sum ends before a matrix that it multiplies. answer_parser.cc parses
// everything around sums.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/data/grading/math_value.h"
#include "common/data/grading/token_reader.h"

namespace dapd {

// Holds the sign that "\pm" stands for at the moment, and whether a "\pm" was
// read.
struct BothSigns {
  int sign = 1;
  bool are_there = false;
};

// Each function returns nothing if the tokens do not fit. The position in the
// tokens is undefined then.
class ValueParser {
 public:
  // The parser reads from `tokens`, which must outlive it.
  explicit ValueParser(TokenReader& tokens) : tokens_(tokens) {}

  // Reads the sum that begins here.
  std::optional<MathValue> SumOf();
  // Reads the ratio that begins here. Returns one value if it is a sum or a
  // quotient of two sums; otherwise its parts divided by the first part that is
  // not zero.
  std::optional<std::vector<MathValue>> RatioOf();

  BothSigns& both_signs() { return both_signs_; }

 private:
  // Holds a fraction, with the state on which its value depends.
  struct Fraction {
    size_t begin = 0;
    size_t end = 0;
    size_t digits_taken = 0;  // at `end`
    int sign = 1;
    bool in_bars = false;
    MathValue value;
  };

  std::optional<MathValue> TermsOf();
  bool StartsFactor() const;
  // Returns whether a number follows directly behind a number that ends the
  // factor which begins at `begin`, if this factor begins with a number: "2 3"
  // is not a product.
  bool FollowsNumber(size_t begin) const;
  std::optional<MathValue> ProductOf();
  std::optional<MathValue> PowerOf();
  // Reads what follows ^ or _, or the argument of a command: a group in braces,
  // or one token. With `one_digit` it takes only the first digit of a number,
  // as LaTeX does.
  std::optional<MathValue> Script(bool one_digit = false);
  // Reads the two arguments of \frac and \binom. "\frac12" has one digit in
  // each argument; the remaining digits are a factor behind it.
  std::optional<std::pair<MathValue, MathValue>> TwoArguments();
  std::optional<MathValue> Number(bool may_be_mixed);
  // Example: 0.1\overline{6} = 0.1 + 6 / 90.
  std::optional<MathValue> Repeating(const MathValue& value,
                                     const std::string& text);
  // Reads the 1/2 of "2 1/2". Returns nothing if there is something else, and
  // leaves it unread.
  std::optional<MathValue> ProperFraction();
  // 1\frac{2}{3} is a sum if all three numbers are integers. Otherwise the
  // fraction is a factor, which is read next.
  std::optional<MathValue> Mixed(const MathValue& whole);
  // Returns the fraction that Mixed has just read at `begin`, if there is one.
  std::optional<MathValue> TakeFraction(size_t begin);
  std::optional<MathValue> Letter();
  std::optional<MathValue> Primary();
  std::optional<MathValue> Grouped();
  std::optional<MathValue> CommandValue();
  std::optional<MathValue> SquareRoot();
  // Reads \sin^2 x, \log_{2} 8, \ln(x): the argument is one product without a
  // function in it.
  std::optional<MathValue> Function(const std::string& name);
  std::optional<MathValue> Argument();

  TokenReader& tokens_;
  BothSigns both_signs_;
  bool in_bars_ = false;
  // Holds the last fraction that Mixed found to be a factor. Reading it again
  // would double the work at every nesting level of fractions.
  std::optional<Fraction> fraction_;
};

}  // namespace dapd
