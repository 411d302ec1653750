#include "common/tokenizer/jinja/template_tests.h"

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_repr.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

Builtin Test(bool (*test)(const Value&)) {
  return {"", [test](const Call& call) -> absl::StatusOr<Value> {
            return Value(test(call.object));
          }};
}

Builtin Comparison(const char* op) {
  return {"other", [op](const Call& call) {
            return ApplyBinary(op, call.object, call[0]);
          }};
}

// Returns whether the remainder of the operand by `divisor` is `wanted`.
absl::StatusOr<Value> RestIs(const Value& operand,
                             const Value& divisor,
                             int64_t wanted) {
  if (!operand.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", operand.TypeName(), " has no divisors"));
  }
  ASSIGN_OR_RETURN(const Value rest, ApplyBinary("%", operand, divisor));
  return Value(rest.Equals(Value(wanted)));
}

Builtin CaseTest(bool (*test)(const std::string&)) {
  return {"", [test](const Call& call) -> absl::StatusOr<Value> {
            ASSIGN_OR_RETURN(const std::string text, ToText(call.object));
            return Value(test(text));
          }};
}

Builtin NameTest(bool (*is_known)(const std::string&)) {
  return {
      "", [is_known](const Call& call) -> absl::StatusOr<Value> {
        return Value(call.object.is_string() && is_known(call.object.string()));
      }};
}

// For texts and large numbers, `is` depends on where Python keeps the two
// objects.
absl::StatusOr<Value> SameAs(const Call& call) {
  const bool is_known = !call.object.is_string() && !call.object.is_double();
  if (!is_known && call[0].TypeName() == call.object.TypeName()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'sameas' of a ", call.object.TypeName(), " is not supported; use =="));
  }
  return Value(call.object.TypeName() == call[0].TypeName() &&
               call.object.IsSame(call[0]));
}

const Builtins& Tests() {
  static const auto& table = *new Builtins{
      {"boolean", Test([](const Value& v) { return v.is_bool(); })},
      {"callable", Test([](const Value& v) {
         return v.is_macro() || (v.is_object() && v.object().call) ||
                v.is_undefined();
       })},
      {"defined", Test([](const Value& v) { return !v.is_undefined(); })},
      {"divisibleby",
       {"num",
        [](const Call& call) { return RestIs(call.object, call[0], 0); }}},
      {"escaped", Test([](const Value& v) { return v.is_markup(); })},
      {"even",
       {"",
        [](const Call& call) {
          return RestIs(call.object, Value(int64_t{2}), 0);
        }}},
      {"false",
       Test([](const Value& v) { return v.is_bool() && !v.boolean(); })},
      {"filter", NameTest(IsKnownFilter)},
      {"float", Test([](const Value& v) { return v.is_double(); })},
      {"in",
       {"seq",
        [](const Call& call) -> absl::StatusOr<Value> {
          ASSIGN_OR_RETURN(const bool contained,
                           Contains(call[0], call.object));
          return Value(contained);
        }}},
      {"integer", Test([](const Value& v) { return v.is_int(); })},
      {"iterable", Test([](const Value& v) {
         return v.is_string() || v.is_list() || v.is_dict() ||
                v.is_generator() || v.is_undefined() ||
                (v.is_object() && v.object().name == "loop");
       })},
      {"lower", CaseTest(IsLowerCase)},
      {"mapping", Test([](const Value& v) { return v.is_dict(); })},
      {"none", Test([](const Value& v) { return v.is_none(); })},
      {"number", Test([](const Value& v) { return v.is_number(); })},
      {"odd",
       {"",
        [](const Call& call) {
          return RestIs(call.object, Value(int64_t{2}), 1);
        }}},
      {"sameas", {"other", SameAs}},
      {"sequence", Test([](const Value& v) {
         return v.is_string() || v.is_sequence() || v.is_dict() ||
                v.is_undefined();
       })},
      {"string", Test([](const Value& v) { return v.is_string(); })},
      {"test", NameTest(IsKnownTest)},
      {"true", Test([](const Value& v) { return v.is_bool() && v.boolean(); })},
      {"undefined", Test([](const Value& v) { return v.is_undefined(); })},
      {"upper", CaseTest(IsUpperCase)},
      {"!=", Comparison("!=")},
      {"<", Comparison("<")},
      {"<=", Comparison("<=")},
      {"==", Comparison("==")},
      {">", Comparison(">")},
      {">=", Comparison(">=")},
      {"eq", Comparison("==")},
      {"equalto", Comparison("==")},
      {"ge", Comparison(">=")},
      {"greaterthan", Comparison(">")},
      {"gt", Comparison(">")},
      {"le", Comparison("<=")},
      {"lessthan", Comparison("<")},
      {"lt", Comparison("<")},
      {"ne", Comparison("!=")},
  };
  return table;
}

}  // namespace

bool IsKnownTest(const std::string& name) { return Tests().contains(name); }

absl::StatusOr<bool> ApplyTest(const std::string& name,
                               const Value& operand,
                               const Arguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no test '", name, "'"));
  }
  ASSIGN_OR_RETURN(const Value holds,
                   RunBuiltin(name, found->second, operand, arguments));
  return holds.boolean();
}

}  // namespace dapd::jinja
