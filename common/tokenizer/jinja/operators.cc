#include "common/tokenizer/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/python_format.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr size_t kMaxBuiltItems = kMaxBuiltBytes / 16;

// Implement Python's // and %: the quotient is rounded down, and the remainder
// has the sign of b. The caller must not divide the smallest integer by -1,
// which processors trap.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t FloorRest(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

absl::Status Overflows() {
  return absl::InvalidArgumentError("an integer overflows");
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return absl::InvalidArgumentError("division by zero");
    return Value(
        std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return Overflows();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return Overflows();
    }
  }
  return Value(result);
}

absl::StatusOr<Value> IntegerArithmetic(const std::string& op,
                                        int64_t x,
                                        int64_t y) {
  if ((op == "/" || op == "//" || op == "%") && y == 0) {
    return absl::InvalidArgumentError("division by zero");
  }
  if (op == "/") {
    return Value(static_cast<double>(x) / static_cast<double>(y));
  }
  if (op == "**") return IntegerPower(x, y);
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(x, y, &result);
  if (op == "-") overflow = __builtin_sub_overflow(x, y, &result);
  if (op == "*") overflow = __builtin_mul_overflow(x, y, &result);
  if (op == "//" && y == -1) {
    overflow = __builtin_sub_overflow(int64_t{0}, x, &result);
  } else if (op == "//") {
    result = FloorDivide(x, y);
  }
  if (op == "%" && y != -1) result = FloorRest(x, y);
  if (overflow) return Overflows();
  return Value(result);
}

absl::StatusOr<Value> FloatPower(double a, double b) {
  if (a == 0.0 && b < 0) {
    return absl::InvalidArgumentError("division by zero");
  }
  if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
    return absl::InvalidArgumentError("a complex number is not supported");
  }
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
    return absl::InvalidArgumentError("a number is too large");
  }
  return Value(power);
}

// Returns Python's remainder: it has the sign of b and is exact.
double FloatRest(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0.0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloatFloorDivide(double a, double b) {
  const double quotient = (a - FloatRest(a, b)) / b;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1.0 : floor;
}

absl::StatusOr<Value> FloatArithmetic(const std::string& op,
                                      double a,
                                      double b) {
  if ((op == "/" || op == "//" || op == "%") && b == 0.0) {
    return absl::InvalidArgumentError("division by zero");
  }
  if (op == "/") return Value(a / b);
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return FloatPower(a, b);
  return Value(op == "//" ? FloatFloorDivide(a, b) : FloatRest(a, b));
}

absl::Status CannotApply(const std::string& op,
                         const Value& left,
                         const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (!side->is_undefined()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", side->undefined().name, "' is undefined"));
  }
  return absl::InvalidArgumentError(absl::StrCat("'",
                                                 op,
                                                 "' cannot be applied to ",
                                                 left.TypeName(),
                                                 " and ",
                                                 right.TypeName()));
}

// Compares two values that have an order. Returns -1, 0 or 1, or 2 if one of
// them is NaN.
absl::StatusOr<int> Compare(const std::string& op,
                            const Value& a,
                            const Value& b) {
  if (a.is_whole() && b.is_whole()) {
    return (a.integer() > b.integer()) - (a.integer() < b.integer());
  }
  if (a.is_number() && b.is_number()) {
    if (std::isnan(a.number()) || std::isnan(b.number())) return 2;
    return (a.number() > b.number()) - (a.number() < b.number());
  }
  // The order of UTF-8 bytes is the order of code points.
  if (a.is_string() && b.is_string()) {
    const int order = a.string().compare(b.string());
    return (order > 0) - (order < 0);
  }
  const bool are_lists =
      a.is_list() && b.is_list() &&
      ((a.shape() == Shape::kList && b.shape() == Shape::kList) ||
       (a.is_tuple() && b.is_tuple()));
  if (!are_lists) return CannotApply(op, a, b);
  const List& x = a.list();
  const List& y = b.list();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!x[i].Equals(y[i])) return Compare(op, x[i], y[i]);
  }
  return (x.size() > y.size()) - (x.size() < y.size());
}

absl::StatusOr<Value> Ordered(const std::string& op,
                              const Value& left,
                              const Value& right) {
  ASSIGN_OR_RETURN(const int order, Compare(op, left, right));
  if (op == "<") return Value(order == -1);
  if (op == "<=") return Value(order == -1 || order == 0);
  return Value(op == ">" ? order == 1 : order == 1 || order == 0);
}

// If one of the texts is safe, the other text is escaped.
absl::StatusOr<Value> Concatenate(const Value& a, const Value& b) {
  const bool escapes = a.is_markup() || b.is_markup();
  const auto text = [&](const Value& v) {
    return escapes && !v.is_markup() ? EscapeHtml(v.string()) : v.string();
  };
  std::string joined = text(a) + text(b);
  if (joined.size() > kMaxBuiltBytes) {
    return absl::ResourceExhaustedError("the template builds too long a text");
  }
  return escapes ? Value::MakeMarkup(std::move(joined))
                 : Value(std::move(joined));
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is_string()) {
    const std::string& text = value.string();
    if (!text.empty() && count > kMaxBuiltBytes / text.size()) {
      return absl::ResourceExhaustedError(
          "the template builds too long a text");
    }
    std::string repeated;
    for (size_t i = 0; i < count; ++i) repeated += text;
    return value.is_markup() ? Value::MakeMarkup(std::move(repeated))
                             : Value(std::move(repeated));
  }
  const List& items = value.list();
  if (!items.empty() && count > kMaxBuiltItems / items.size()) {
    return absl::ResourceExhaustedError("the template builds too long a list");
  }
  List repeated;
  for (size_t i = 0; i < count; ++i) {
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return Value(std::move(repeated),
               value.is_tuple() ? Shape::kTuple : Shape::kList);
}

bool CanRepeat(const Value& value) {
  return value.is_string() || value.is_tuple() ||
         (value.is_list() && value.shape() == Shape::kList);
}

}  // namespace

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) return CannotApply("in", item, container);
    return FindText(container.string(), item.string()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!IsHashable(item)) return CannotApply("in", item, container);
    return absl::c_any_of(container.dict(), [&](const auto& entry) {
      return entry.first.Equals(item);
    });
  }
  if (container.is_generator()) {
    Generator& generator = container.generator();
    ASSIGN_OR_RETURN(const List left, generator.Drain());
    const auto found =
        std::find_if(left.begin(), left.end(), [&](const Value& candidate) {
          return candidate.Equals(item);
        });
    if (found == left.end()) return false;
    // The items behind the found item stay in the generator.
    generator.GiveBack(static_cast<size_t>(left.end() - found) - 1);
    return true;
  }
  // Jinja iterates over an undefined value as over an empty list.
  if (container.is_undefined()) return false;
  if (!container.is_list()) return CannotApply("in", item, container);
  return std::any_of(
      container.list().begin(),
      container.list().end(),
      [&](const Value& candidate) { return candidate.Equals(item); });
}

absl::StatusOr<bool> IsLess(const Value& left, const Value& right) {
  ASSIGN_OR_RETURN(const Value less, Ordered("<", left, right));
  return less.boolean();
}

absl::StatusOr<Value> ApplyUnary(const std::string& op, const Value& operand) {
  if (op == "not") return Value(!operand.Truthy());
  if (operand.is_undefined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", operand.undefined().name, "' is undefined"));
  }
  if (!operand.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", op, "' cannot be applied to ", operand.TypeName()));
  }
  const bool negate = op == "-";
  if (operand.is_double()) {
    return Value(negate ? -operand.number() : operand.number());
  }
  int64_t result = operand.integer();
  if (negate && __builtin_sub_overflow(int64_t{0}, result, &result)) {
    return Overflows();
  }
  return Value(result);
}

absl::StatusOr<Value> ApplyBinary(const std::string& op,
                                  const Value& left,
                                  const Value& right) {
  if (op == "==") return Value(left.Equals(right));
  if (op == "!=") return Value(!left.Equals(right));
  if (op == "in" || op == "not in") {
    ASSIGN_OR_RETURN(const bool contained, Contains(right, left));
    return Value(contained == (op == "in"));
  }
  if (op == "~") {
    const auto as_text = [](const Value& v) -> absl::StatusOr<Value> {
      if (v.is_string()) return v;
      ASSIGN_OR_RETURN(std::string text, ToText(v));
      return Value(std::move(text));
    };
    ASSIGN_OR_RETURN(const Value a, as_text(left));
    ASSIGN_OR_RETURN(const Value b, as_text(right));
    return Concatenate(a, b);
  }
  if (op[0] == '<' || op[0] == '>') return Ordered(op, left, right);
  if (left.is_whole() && right.is_whole()) {
    return IntegerArithmetic(op, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) {
    return FloatArithmetic(op, left.number(), right.number());
  }
  if (op == "%" && left.is_string() && !left.is_markup() &&
      !right.is_undefined()) {
    ASSIGN_OR_RETURN(std::string text, FormatPercent(left.string(), right));
    return Value(std::move(text));
  }
  if (op == "*" && CanRepeat(left) && right.is_whole()) {
    return Repeat(left, right.integer());
  }
  if (op == "*" && CanRepeat(right) && left.is_whole()) {
    return Repeat(right, left.integer());
  }
  if (op == "+" && left.is_string() && right.is_string()) {
    return Concatenate(left, right);
  }
  const bool are_alike = CanRepeat(left) && CanRepeat(right) &&
                         left.is_list() && right.is_list() &&
                         left.is_tuple() == right.is_tuple();
  if (op == "+" && are_alike) {
    List joined = left.list();
    joined.insert(joined.end(), right.list().begin(), right.list().end());
    return Value(std::move(joined),
                 left.is_tuple() ? Shape::kTuple : Shape::kList);
  }
  return CannotApply(op, left, right);
}

absl::StatusOr<Value> Slice(const Value& object,
                            const Value& start,
                            const Value& stop,
                            const Value& step) {
  if (object.is_undefined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", object.undefined().name, "' is undefined"));
  }
  if (!object.is_sequence() && !object.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", object.TypeName(), " cannot be sliced"));
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_none() || bound->is_undefined()) continue;
    RETURN_IF_ERROR(IntegerOr(*bound, 0).status());
  }
  ASSIGN_OR_RETURN(const List items, Iterate(object));
  const auto size = static_cast<int64_t>(items.size());
  const int64_t stride = step.is_whole() ? step.integer() : 1;
  if (stride == 0) return absl::InvalidArgumentError("slice step is 0");
  // Python clips the bounds, too.
  const auto bound = [&](const Value& value, int64_t absent) {
    if (!value.is_whole()) return absent;
    int64_t index = value.integer();
    if (index < 0) index += size;
    return stride > 0 ? std::clamp<int64_t>(index, 0, size)
                      : std::clamp<int64_t>(index, -1, size - 1);
  };
  const int64_t first = bound(start, stride > 0 ? 0 : size - 1);
  const int64_t last = bound(stop, stride > 0 ? size : -1);
  List picked;
  for (int64_t i = first; stride > 0 ? i < last : i > last;) {
    picked.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (object.is_list()) {
    return Value(std::move(picked),
                 object.is_tuple() ? Shape::kTuple : object.shape());
  }
  std::string text;
  for (const Value& letter : picked) text += letter.string();
  return object.is_markup() ? Value::MakeMarkup(std::move(text))
                            : Value(std::move(text));
}

std::string EscapeHtml(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"},
                              {"<", "&lt;"},
                              {">", "&gt;"},
                              {"'", "&#39;"},
                              {"\"", "&#34;"}});
}

}  // namespace dapd::jinja
