#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "common/data/grading/answer_expression.h"

namespace dapd {
namespace {

using Form = AnswerExpression::Kind;

bool IsEquation(const AnswerExpression& a) {
  return a.kind == Form::kRelation &&
         std::all_of(a.relations.begin(),
                     a.relations.end(),
                     [](const std::string& symbol) {
                       return symbol == "=" || symbol == "~=";
                     });
}

bool IsMembership(const AnswerExpression& a) {
  return a.kind == Form::kRelation && a.relations.size() == 1 &&
         a.relations[0] == "in";
}

bool SameInOrder(const std::vector<AnswerExpression>& a,
                 const std::vector<AnswerExpression>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), SameAnswer);
}

// Returns whether the parts can be paired. Kuhn's augmenting paths make the
// result independent of which of two equal parts is taken first.
bool SameInAnyOrder(const std::vector<AnswerExpression>& a,
                    const std::vector<AnswerExpression>& b) {
  if (a.size() != b.size()) return false;
  const size_t n = a.size();
  std::vector<std::vector<bool>> same(n, std::vector<bool>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) same[i][j] = SameAnswer(a[i], b[j]);
  }
  std::vector<size_t> partner(n, n);  // partner of b[j]
  std::vector<bool> tried;
  const std::function<bool(size_t)> pair_up = [&](size_t i) {
    for (size_t j = 0; j < n; ++j) {
      if (!same[i][j] || tried[j]) continue;
      tried[j] = true;
      if (partner[j] == n || pair_up(partner[j])) {
        partner[j] = i;
        return true;
      }
    }
    return false;
  };
  for (size_t i = 0; i < n; ++i) {
    tried.assign(n, false);
    if (!pair_up(i)) return false;
  }
  return true;
}

AnswerExpression Infinity(int sign) {
  AnswerExpression infinity;
  infinity.value =
      FloatValue({sign * std::numeric_limits<long double>::infinity(), 0});
  return infinity;
}

bool IsValue(const AnswerExpression& a) { return a.kind == Form::kValue; }

bool IsLess(const std::string& symbol) {
  return symbol == "<" || symbol == "<=";
}
bool IsGreater(const std::string& symbol) {
  return symbol == ">" || symbol == ">=";
}

// Returns the relations read from the other side if they begin with a ">".
AnswerExpression Ascending(const AnswerExpression& a) {
  if (!IsGreater(a.relations.front())) return a;
  AnswerExpression turned = a;
  std::reverse(turned.parts.begin(), turned.parts.end());
  std::reverse(turned.relations.begin(), turned.relations.end());
  for (std::string& symbol : turned.relations) {
    if (IsGreater(symbol)) {
      symbol[0] = '<';
    } else if (IsLess(symbol)) {
      symbol[0] = '>';
    }
  }
  turned.is_assignment = false;
  return turned;
}

// Holds a relation as an interval, with the name of its variable: x < 2 is
// (-inf, 2), and 1 <= x < 2 is [1, 2).
struct Range {
  std::string variable;
  AnswerExpression interval;
};
std::optional<Range> RangeOf(const AnswerExpression& relation) {
  const AnswerExpression a = Ascending(relation);
  if (!std::all_of(a.relations.begin(), a.relations.end(), IsLess) ||
      !std::all_of(a.parts.begin(), a.parts.end(), IsValue)) {
    return std::nullopt;
  }
  Range range;
  range.interval.kind = Form::kInterval;
  const auto bounds = [&](const AnswerExpression& low,
                          bool low_open,
                          const AnswerExpression& middle,
                          const AnswerExpression& high,
                          bool high_open) -> std::optional<Range> {
    if (middle.value.symbol.empty()) return std::nullopt;
    range.variable = middle.value.symbol;
    range.interval.parts = {low, high};
    range.interval.left_open = low_open;
    range.interval.right_open = high_open;
    return range;
  };
  if (a.parts.size() == 3) {
    return bounds(a.parts[0],
                  a.relations[0] == "<",
                  a.parts[1],
                  a.parts[2],
                  a.relations[1] == "<");
  }
  if (a.parts.size() != 2) return std::nullopt;
  if (!a.parts[0].value.symbol.empty()) {
    return bounds(
        Infinity(-1), true, a.parts[0], a.parts[1], a.relations[0] == "<");
  }
  return bounds(
      a.parts[0], a.relations[0] == "<", a.parts[1], Infinity(1), true);
}

// Compares two relations with two values each: their differences must be in a
// constant ratio.
bool SameDifference(const AnswerExpression& a,
                    const AnswerExpression& b,
                    bool must_be_positive) {
  if (a.parts.size() != 2 || b.parts.size() != 2 || !IsValue(a.parts[0]) ||
      !IsValue(a.parts[1]) || !IsValue(b.parts[0]) || !IsValue(b.parts[1])) {
    return false;
  }
  const auto ratio =
      ConstantRatio(Difference(a.parts[0].value, a.parts[1].value),
                    Difference(b.parts[0].value, b.parts[1].value));
  return ratio.has_value() && (!must_be_positive || *ratio > 0);
}

bool SameRelation(const AnswerExpression& left, const AnswerExpression& right) {
  if (IsEquation(left) && IsEquation(right)) {
    // a = b = c states that a is c.
    if (left.is_assignment && right.is_assignment &&
        SameAnswer(left.parts.front(), right.parts.front())) {
      return SameAnswer(left.parts.back(), right.parts.back());
    }
    return SameDifference(left, right, /*must_be_positive=*/false) ||
           SameInOrder(left.parts, right.parts);
  }
  const AnswerExpression a = Ascending(left);
  const AnswerExpression b = Ascending(right);
  const auto range_a = RangeOf(a);
  const auto range_b = RangeOf(b);
  if (range_a.has_value() && range_b.has_value()) {
    return range_a->variable == range_b->variable &&
           SameAnswer(range_a->interval, range_b->interval);
  }
  if (a.relations != b.relations) return false;
  return SameInOrder(a.parts, b.parts) ||
         SameDifference(a, b, /*must_be_positive=*/a.relations[0] != "!=");
}

// Returns the values that a relation assigns: both values for "x = 4\pi ~=
// 12.57", S for "x in S", the interval for "1 < x < 2".
std::vector<AnswerExpression> Results(const AnswerExpression& relation) {
  if (IsMembership(relation)) return {relation.parts[1]};
  if (!IsEquation(relation)) {
    const auto range = RangeOf(relation);
    if (!range.has_value()) return {};
    return {range->interval};
  }
  std::vector<AnswerExpression> results;
  for (size_t i = relation.is_assignment ? 1 : 0; i < relation.parts.size();
       ++i) {
    if (i == relation.relations.size() || relation.relations[i] == "~=") {
      results.push_back(relation.parts[i]);
    }
  }
  return results;
}

// Compares a given relation with an expected answer that is not a relation. The
// left side may be a computation; it does not count.
bool GivenRelationIs(const AnswerExpression& relation,
                     const AnswerExpression& expected) {
  return std::ranges::any_of(Results(relation), [&](const auto& result) {
    return SameAnswer(result, expected);
  });
}

// Compares a given answer that is not a relation with an expected relation. "2
// x = 7" and "9 = 5 a + b" ask for an equation.
bool IsExpectedRelation(const AnswerExpression& given,
                        const AnswerExpression& relation) {
  if (IsEquation(relation) && !relation.is_assignment &&
      relation.relations.front() != "~=") {
    return false;
  }
  return std::ranges::any_of(Results(relation), [&](const auto& result) {
    return SameAnswer(given, result);
  });
}

// "x < 1 or x > 2" is the union of the intervals that its parts give for x.
bool ListIsUnion(const AnswerExpression& list, const AnswerExpression& all) {
  std::vector<AnswerExpression> intervals;
  std::string variable;
  for (const AnswerExpression& part : list.parts) {
    if (part.kind != Form::kRelation) return false;
    std::optional<Range> range = RangeOf(part);
    if (!range.has_value()) return false;
    if (intervals.empty()) variable = range->variable;
    if (range->variable != variable) return false;
    intervals.push_back(std::move(range->interval));
  }
  return SameInAnyOrder(intervals, all.parts);
}

// "\mathbb{R}" is the interval between the infinities.
bool IsRealLine(const AnswerExpression& name,
                const AnswerExpression& interval) {
  return name.kind == Form::kValue && name.value.symbol == "\\mathbbr" &&
         interval.kind == Form::kInterval && interval.left_open &&
         interval.right_open && SameAnswer(interval.parts[0], Infinity(-1)) &&
         SameAnswer(interval.parts[1], Infinity(1));
}

bool SameInterval(const AnswerExpression& a, const AnswerExpression& b) {
  return a.left_open == b.left_open && a.right_open == b.right_open &&
         SameInOrder(a.parts, b.parts);
}

// Recognizes tuples, and the interval (1, 2) as a point.
bool IsOrdered(const AnswerExpression& a) {
  return a.kind == Form::kTuple ||
         (a.kind == Form::kInterval && a.left_open && a.right_open);
}

// Compares two expressions of the same kind.
bool SameForm(const AnswerExpression& a, const AnswerExpression& b) {
  switch (a.kind) {
    case Form::kValue:
      return SameValue(a.value, b.value);
    case Form::kList:
    case Form::kUnion:
      return SameInAnyOrder(a.parts, b.parts);
    case Form::kInterval:
      return SameInterval(a, b);
    case Form::kTuple:
    case Form::kRatio:
    case Form::kMatrix:
      return SameInOrder(a.parts, b.parts);
    case Form::kEmptySet:
      return true;
    case Form::kRelation:
      return IsMembership(a) && IsMembership(b) ? SameInOrder(a.parts, b.parts)
                                                : SameRelation(a, b);
  }
  return false;
}

}  // namespace

bool SameAnswer(const AnswerExpression& given,
                const AnswerExpression& expected) {
  if (given.kind == expected.kind) return SameForm(given, expected);
  if (given.kind == Form::kRelation) return GivenRelationIs(given, expected);
  if (expected.kind == Form::kRelation) {
    return IsExpectedRelation(given, expected);
  }
  if (given.kind == Form::kList && expected.kind == Form::kUnion) {
    return ListIsUnion(given, expected);
  }
  if (given.kind == Form::kUnion && expected.kind == Form::kList) {
    return ListIsUnion(expected, given);
  }
  if (IsRealLine(given, expected) || IsRealLine(expected, given)) return true;
  if (given.kind == Form::kList) {
    return given.parts.size() == 1
               ? SameAnswer(given.parts[0], expected)
               : IsOrdered(expected) &&
                     SameInOrder(given.parts, expected.parts);
  }
  if (expected.kind == Form::kList) {
    return expected.parts.size() == 1
               ? SameAnswer(given, expected.parts[0])
               : IsOrdered(given) && SameInOrder(given.parts, expected.parts);
  }
  return IsOrdered(given) && IsOrdered(expected) &&
         SameInOrder(given.parts, expected.parts);
}

}  // namespace dapd
