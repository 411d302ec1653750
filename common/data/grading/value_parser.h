// The sums in an answer, from its tokens to what they are worth (math_value.h):
//
//   ratio     = sum { ":" sum }
//   sum       = terms [("\over" | "\choose") sum]
//   terms     = ["+" | "-" | "\pm"] product { ("+" | "-" | "\pm") product }
//   product   = power { ["*" | "/"] power }
//   power     = primary { "!" | "%" | "^" script }
//
// A sum ends before a matrix that it is a factor of. What stands around sums is
// answer_parser.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/data/grading/math_value.h"
#include "common/data/grading/token_reader.h"

namespace dapd {

// What "\pm" stands for at the moment, and whether one was read.
struct BothSigns {
  int sign = 1;
  bool are_there = false;
};

// Each function gives nothing where the tokens do not fit; the place is then of
// no use any more.
class ValueParser {
 public:
  // Reads from `tokens`, which must outlive it.
  explicit ValueParser(TokenReader& tokens) : tokens_(tokens) {}

  // The sum that begins here.
  std::optional<MathValue> SumOf();
  // The ratio that begins here: as one value where it is a sum or a quotient of
  // two, else its parts divided by the first that is not zero.
  std::optional<std::vector<MathValue>> RatioOf();

  BothSigns& both_signs() { return both_signs_; }

 private:
  // A fraction, and what its value depends on.
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
  // Whether a number stands here directly behind one that ends the factor from
  // `begin` on, which begins with a number: "2 3" is no product.
  bool FollowsNumber(size_t begin) const;
  std::optional<MathValue> ProductOf();
  std::optional<MathValue> PowerOf();
  // What stands behind ^ or _, or is the argument of a command: a group in
  // braces, or one token (of a number its first digit, as LaTeX has it, where
  // `one_digit`).
  std::optional<MathValue> Script(bool one_digit = false);
  // The two arguments of \frac and \binom: "\frac12" has one digit each, and
  // what is left of the digits is a factor behind it.
  std::optional<std::pair<MathValue, MathValue>> TwoArguments();
  std::optional<MathValue> Number(bool may_be_mixed);
  // 0.1\overline{6} = 0.1 + 6 / 90.
  std::optional<MathValue> Repeating(const MathValue& value,
                                     const std::string& text);
  // The 1/2 of "2 1/2"; nothing if something else stands here, which is left.
  std::optional<MathValue> ProperFraction();
  // 1\frac{2}{3} is a sum where all three are integers. Else the fraction is a
  // factor, which is read next.
  std::optional<MathValue> Mixed(const MathValue& whole);
  // What Mixed has read at `begin`, if it has just done so.
  std::optional<MathValue> TakeFraction(size_t begin);
  std::optional<MathValue> Letter();
  std::optional<MathValue> Primary();
  std::optional<MathValue> Grouped();
  std::optional<MathValue> CommandValue();
  std::optional<MathValue> SquareRoot();
  // \sin^2 x, \log_{2} 8, \ln(x): the argument is one product without a
  // function in it.
  std::optional<MathValue> Function(const std::string& name);
  std::optional<MathValue> Argument();

  TokenReader& tokens_;
  BothSigns both_signs_;
  bool in_bars_ = false;
  // The last one that Mixed found to be a factor. To read it again would double
  // the work at every level that fractions are nested.
  std::optional<Fraction> fraction_;
};

}  // namespace dapd
