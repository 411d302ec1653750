// AnswerExpression: an answer as mathematics, and when two of them are the
// same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/data/grading/latex_lexer.h"
#include "common/data/grading/math_value.h"

namespace dapd {

struct AnswerExpression {
  enum class Kind {
    kValue,     // value
    kList,      // parts in any order: "1, 2", "\{1, 2\}", "\pm 1"
    kTuple,     // parts in their order: "(1, 2, 3)"
    kRatio,     // three parts or more, as ValueParser::RatioOf: "3 : 4 : 5"
    kInterval,  // two parts; "(1, 2)" can be an open one and a point
    kUnion,     // parts in any order: intervals and sets
    kRelation,  // parts with a relation between each two: "1 < x <= 2"
    kMatrix,    // parts are its rows, tuples
    kEmptySet,
  };
  Kind kind = Kind::kValue;
  MathValue value;
  std::vector<AnswerExpression> parts;
  bool left_open = false;  // of an interval
  bool right_open = false;
  // "=", "~=" (about), "<", "<=", ">", ">=", "!=", "in".
  std::vector<std::string> relations;
  // Of a relation: what stands on the left is a name: "x", "f(x)", "(x, y)", or
  // made of names alone, "PQ", "AB + CD", or what is no mathematics.
  bool is_assignment = false;
};

// Nothing for tokens that are no mathematics that is known here, or nested more
// than 64 deep.
std::optional<AnswerExpression> ParseAnswer(
    const std::vector<LatexToken>& tokens);

// Values as SameValue. "x = 5" is 5 and "x \in S" is S, but "x = 5" is not
// "y = 5"; an equation that is given is its right-hand side even if more than
// names are on its left, and one with "~=" is any of its sides;
// equations are the same if their differences are in a constant
// ratio, inequalities in a positive one, and so are ratios; "1 < x < 2" is (1,
// 2) and "x < 1 or x > 2" a union; \mathbb{R} is (-inf, inf); the open interval
// (1, 2) is also the point and, in this order, the list 1, 2.
bool SameAnswer(const AnswerExpression& given,
                const AnswerExpression& expected);

}  // namespace dapd
