#include "common/tokenizer/jinja/operators.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

// Python's // and %: the quotient is rounded down, the rest has b's sign. The
// smallest integer must not meet -1, which is what a processor traps on.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t FloorRest(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

absl::StatusOr<Value> Contains(const Value& container, const Value& item) {
  if (container.is_string() && item.is_string()) {
    return Value(FindText(container.string(), item.string()) !=
                 std::string::npos);
  }
  if (container.is_dict()) {
    return Value(item.is_string() &&
                 !container.Get(item.string()).is_undefined());
  }
  // Jinja iterates over what is undefined as over an empty list.
  if (container.is_undefined()) return Value(false);
  if (!container.is_list()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'in' a ", container.TypeName()));
  }
  for (const Value& candidate : container.list()) {
    if (candidate.Equals(item)) return Value(true);
  }
  return Value(false);
}

absl::StatusOr<Value> IntegerArithmetic(const std::string& op,
                                        int64_t x,
                                        int64_t y) {
  if (op == "<") return Value(x < y);
  if (op == "<=") return Value(x <= y);
  if (op == ">") return Value(x > y);
  if (op == ">=") return Value(x >= y);
  if ((op == "/" || op == "//" || op == "%") && y == 0) {
    return absl::InvalidArgumentError("division by zero");
  }
  if (op == "/") {
    return Value(static_cast<double>(x) / static_cast<double>(y));
  }
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
  if (overflow) return absl::InvalidArgumentError("an integer overflows");
  return Value(result);
}

absl::StatusOr<Value> Arithmetic(const std::string& op,
                                 const Value& left,
                                 const Value& right) {
  const bool whole = !left.is_double() && !right.is_double();
  if (whole) return IntegerArithmetic(op, left.integer(), right.integer());
  const double a = left.number();
  const double b = right.number();
  if (op == "<") return Value(a < b);
  if (op == "<=") return Value(a <= b);
  if (op == ">") return Value(a > b);
  if (op == ">=") return Value(a >= b);
  if ((op == "/" || op == "//" || op == "%") && b == 0.0) {
    return absl::InvalidArgumentError("division by zero");
  }
  if (op == "/") return Value(a / b);
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "//") return Value(std::floor(a / b));
  return Value(a - b * std::floor(a / b));
}

absl::StatusOr<Value> Concatenate(const std::string& a,
                                  const std::string& b,
                                  size_t max_bytes) {
  if (a.size() + b.size() > max_bytes) {
    return absl::ResourceExhaustedError("the template builds too long a text");
  }
  return Value(a + b);
}

}  // namespace

absl::StatusOr<Value> ApplyUnary(const std::string& op, const Value& operand) {
  if (op == "not") return Value(!operand.Truthy());
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
    return absl::InvalidArgumentError("an integer overflows");
  }
  return Value(result);
}

absl::StatusOr<Value> ApplyBinary(const std::string& op,
                                  const Value& left,
                                  const Value& right,
                                  size_t max_bytes) {
  if (op == "==") return Value(left.Equals(right));
  if (op == "!=") return Value(!left.Equals(right));
  if (op == "in") return Contains(right, left);
  if (op == "not in") {
    ASSIGN_OR_RETURN(const Value contained, Contains(right, left));
    return Value(!contained.boolean());
  }
  if (op == "~") {
    ASSIGN_OR_RETURN(const std::string a, ToText(left));
    ASSIGN_OR_RETURN(const std::string b, ToText(right));
    return Concatenate(a, b, max_bytes);
  }
  if (left.is_number() && right.is_number()) {
    return Arithmetic(op, left, right);
  }
  if (left.is_string() && right.is_string()) {
    if (op == "+") return Concatenate(left.string(), right.string(), max_bytes);
    if (op == "<") return Value(left.string() < right.string());
    if (op == ">") return Value(left.string() > right.string());
  }
  if (left.is_list() && right.is_list() && op == "+") {
    List joined = left.list();
    joined.insert(joined.end(), right.list().begin(), right.list().end());
    return Value(std::move(joined));
  }
  return absl::InvalidArgumentError(absl::StrCat("'",
                                                 op,
                                                 "' cannot be applied to ",
                                                 left.TypeName(),
                                                 " and ",
                                                 right.TypeName()));
}

absl::StatusOr<Value> GetItem(const Value& object, const Value& key) {
  if (object.is_undefined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", object.undefined_name(), "' is undefined"));
  }
  if ((object.is_dict() || object.is_namespace()) && key.is_string()) {
    return object.Get(key.string());
  }
  if ((object.is_list() || object.is_string()) && key.is_int()) {
    // A list is not copied by this.
    ASSIGN_OR_RETURN(
        const Value items,
        object.is_list() ? object : ApplyFilter("list", object, {}));
    const auto size = static_cast<int64_t>(items.list().size());
    const int64_t index =
        key.integer() < 0 ? key.integer() + size : key.integer();
    if (index < 0 || index >= size) return Value::MakeUndefined("index");
    return items.list()[static_cast<size_t>(index)];
  }
  return Value::MakeUndefined(key.is_string() ? key.string() : "item");
}

}  // namespace dapd::jinja
