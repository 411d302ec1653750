#include "common/tokenizer/jinja/evaluator.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"

namespace dapd::jinja {

absl::Status AtLine(int line, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat("line ", line, ": ", std::string(status.message())));
}

Evaluator::Evaluator(Budget& budget, CallMacro call_macro)
    : budget_(budget), call_macro_(std::move(call_macro)) {}

absl::StatusOr<Value> Evaluator::Evaluate(const Expression& node,
                                          const Scope& scope) {
  RETURN_IF_ERROR(budget_.CountSteps());
  RETURN_IF_ERROR(budget_.Descend());
  absl::StatusOr<Value> value = EvaluateNode(node, scope);
  budget_.Ascend();
  if (value.ok()) {
    const absl::Status status = budget_.CheckSize(*value);
    if (!status.ok()) value = status;
  }
  // The innermost place names the line.
  if (!value.ok() && !absl::StartsWith(value.status().message(), "line ")) {
    return AtLine(node.line, value.status());
  }
  return value;
}

absl::StatusOr<Value> Evaluator::EvaluateNode(const Expression& node,
                                              const Scope& scope) {
  switch (node.kind) {
    case Expression::Kind::kLiteral:
      return node.value;
    case Expression::Kind::kName:
      return scope.Lookup(node.text);
    case Expression::Kind::kList:
      return EvaluateList(node, scope);
    case Expression::Kind::kDict:
      return EvaluateDict(node, scope);
    case Expression::Kind::kBinary:
      return EvaluateBinary(node, scope);
    case Expression::Kind::kConditional: {
      ASSIGN_OR_RETURN(const Value condition,
                       Evaluate(*node.children[0], scope));
      if (condition.Truthy()) return Evaluate(*node.children[1], scope);
      if (node.children[2] == nullptr) return Value();
      return Evaluate(*node.children[2], scope);
    }
    case Expression::Kind::kCall:
      return Call(node, scope);
    default:
      break;
  }
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.children[0], scope));
  switch (node.kind) {
    case Expression::Kind::kUnary:
      return ApplyUnary(node.text, object);
    case Expression::Kind::kAttribute:
      RETURN_IF_ERROR(budget_.CountSteps(LookupCost(object)));
      return GetItem(object, Value(node.text));
    case Expression::Kind::kIndex: {
      ASSIGN_OR_RETURN(const Value key, Evaluate(*node.children[1], scope));
      RETURN_IF_ERROR(budget_.CountSteps(LookupCost(object)));
      return GetItem(object, key);
    }
    case Expression::Kind::kSlice:
      return EvaluateSlice(node, object, scope);
    default:
      break;
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node, scope));
  return CallBuiltin(node, object, arguments);
}

absl::StatusOr<Value> Evaluator::EvaluatePart(const Expression& node,
                                              const Scope& scope) {
  ASSIGN_OR_RETURN(Value value, Evaluate(node, scope));
  RETURN_IF_ERROR(CheckPart(value));
  return value;
}

absl::StatusOr<Arguments> Evaluator::EvaluateArguments(const Expression& node,
                                                       const Scope& scope) {
  Arguments arguments;
  for (const ExpressionPtr& argument : node.arguments) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : node.keywords) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    arguments.keywords.emplace_back(name, std::move(value));
  }
  return arguments;
}

absl::StatusOr<Value> Evaluator::EvaluateList(const Expression& node,
                                              const Scope& scope) {
  List items;
  for (const ExpressionPtr& child : node.children) {
    ASSIGN_OR_RETURN(Value item, EvaluatePart(*child, scope));
    items.push_back(std::move(item));
  }
  return Value(std::move(items));
}

absl::StatusOr<Value> Evaluator::EvaluateDict(const Expression& node,
                                              const Scope& scope) {
  DictBuilder dict;
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, Evaluate(*node.children[i], scope));
    ASSIGN_OR_RETURN(Value value, EvaluatePart(*node.children[i + 1], scope));
    if (!key.is_string()) {
      return absl::InvalidArgumentError("a dict's key is not a string");
    }
    dict.Set(key.string(), std::move(value));
  }
  return Value(dict.Take());
}

absl::StatusOr<Value> Evaluator::EvaluateBinary(const Expression& node,
                                                const Scope& scope) {
  ASSIGN_OR_RETURN(const Value left, Evaluate(*node.children[0], scope));
  if (node.text == "and" && !left.Truthy()) return left;
  if (node.text == "or" && left.Truthy()) return left;
  ASSIGN_OR_RETURN(const Value right, Evaluate(*node.children[1], scope));
  if (node.text == "and" || node.text == "or") return right;
  RETURN_IF_ERROR(budget_.CountSteps(BinaryCost(node.text, left, right)));
  return ApplyBinary(node.text, left, right, budget_.limits().max_output_bytes);
}

absl::StatusOr<Value> Evaluator::EvaluateSlice(const Expression& node,
                                               const Value& object,
                                               const Scope& scope) {
  Value bounds[3];
  for (int i = 0; i < 3; ++i) {
    if (node.children[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.children[i + 1], scope));
  }
  RETURN_IF_ERROR(budget_.CountSteps(Cost(object)));
  return Slice(object, bounds[0], bounds[1], bounds[2]);
}

absl::StatusOr<Value> Evaluator::Call(const Expression& node,
                                      const Scope& scope) {
  const Value callee = scope.Lookup(node.text);
  if (!callee.is_macro() &&
      (!callee.is_undefined() || !IsKnownFunction(node.text))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", node.text, "' is called, which is ", callee.TypeName()));
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node, scope));
  ASSIGN_OR_RETURN(Value result,
                   callee.is_macro() ? call_macro_(callee.macro(), arguments)
                                     : CallFunction(node.text, arguments));
  RETURN_IF_ERROR(budget_.CountSteps(Cost(result)));
  return result;
}

absl::StatusOr<Value> Evaluator::CallBuiltin(const Expression& node,
                                             const Value& object,
                                             const Arguments& arguments) {
  RETURN_IF_ERROR(
      budget_.CountSteps(BuiltinCost(node.text, object, arguments)));
  RETURN_IF_ERROR(CheckArguments(node.text, arguments));
  if (node.kind == Expression::Kind::kTest) {
    ASSIGN_OR_RETURN(const bool holds, ApplyTest(node.text, object, arguments));
    return Value(holds);
  }
  ASSIGN_OR_RETURN(Value result,
                   node.kind == Expression::Kind::kFilter
                       ? ApplyFilter(node.text, object, arguments)
                       : CallMethod(node.text, object, arguments));
  RETURN_IF_ERROR(budget_.CountSteps(Cost(result)));
  return result;
}

}  // namespace dapd::jinja
