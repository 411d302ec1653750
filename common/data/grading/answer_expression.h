// AnswerExpression represents an answer as mathematics; SameAnswer compares two
// of them.
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
    kRatio,     // three parts or more: "3 : 4 : 5"
    kInterval,  // two parts; "(1, 2)" can be an open interval and a point
    kUnion,     // parts in any order: intervals and sets
    kRelation,  // parts with a relation between each two: "1 < x <= 2"
    kMatrix,    // parts are its rows, tuples
    kEmptySet,
  };
  Kind kind = Kind::kValue;
  MathValue value;
  std::vector<AnswerExpression> parts;
  bool left_open = false;  // for an interval
  bool right_open = false;
  // Each relation is "=", "~=" (about), "<", "<=", ">", ">=", "!=" or "in".
  std::vector<std::string> relations;
  // For a relation: the left side is a name ("x", "f(x)", "(x, y)"), or
  // consists of names alone ("PQ", "AB + CD"), or is not mathematics.
  bool is_assignment = false;
};

// Returns nothing if the tokens are not mathematics that this parser knows, or
// if they are nested more than 64 deep.
std::optional<AnswerExpression> ParseAnswer(
    const std::vector<LatexToken>& tokens);

// Compares values with SameValue. The rules for the other kinds are:
// * "x = 5" is the same as 5, and "x \in S" as S, but "x = 5" is not "y = 5".
// * A given equation is the same as its right-hand side even if there is more
//   than names on its left. An equation with "~=" is the same as any of its
//   sides.
// * Equations are the same if their differences (left minus right) are in a
//   constant ratio, inequalities if they are in a positive ratio. The same
//   holds for ratios.
// * "1 < x < 2" is the same as (1, 2), and "x < 1 or x > 2" as a union.
// * \mathbb{R} is (-inf, inf).
// * The open interval (1, 2) is also the point and, in this order, the list 1,
//   2.
bool SameAnswer(const AnswerExpression& given,
                const AnswerExpression& expected);

}  // namespace dapd
