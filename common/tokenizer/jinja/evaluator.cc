#include "common/tokenizer/jinja/evaluator.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/attributes.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/globals.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/template_tests.h"

namespace dapd::jinja {
namespace {

// A safe text has its own methods and filters in jinja2, which escape their
// arguments.
absl::Status CheckMarkup(const std::string& name, const Value& object) {
  static const auto& harmless = *new std::set<std::string>{"safe",
                                                           "e",
                                                           "escape",
                                                           "forceescape",
                                                           "string",
                                                           "default",
                                                           "d",
                                                           "length",
                                                           "count",
                                                           "list",
                                                           "tojson",
                                                           "first",
                                                           "last",
                                                           "int",
                                                           "float",
                                                           "wordcount"};
  if (!object.is_markup() || harmless.contains(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'",
                   name,
                   "' of a text that 'safe' or 'escape' gave is not "
                   "supported; leave that filter out"));
}

}  // namespace

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
  // The innermost expression names the line.
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
    case Expression::Kind::kTuple: {
      ASSIGN_OR_RETURN(List items, EvaluateItems(node, scope));
      return Value(
          std::move(items),
          node.kind == Expression::Kind::kTuple ? Shape::kTuple : Shape::kList);
    }
    case Expression::Kind::kDict:
      return EvaluateDict(node, scope);
    case Expression::Kind::kBinary:
      return EvaluateBinary(node, scope);
    case Expression::Kind::kComparison:
      return EvaluateComparison(node, scope);
    case Expression::Kind::kConditional: {
      ASSIGN_OR_RETURN(const Value condition,
                       Evaluate(*node.children[0], scope));
      if (condition.Truthy()) return Evaluate(*node.children[1], scope);
      if (node.children[2] == nullptr) return Value();
      return Evaluate(*node.children[2], scope);
    }
    case Expression::Kind::kCall:
      return EvaluateCall(node, scope);
    case Expression::Kind::kFilter:
      return EvaluateFilter(node, scope);
    case Expression::Kind::kTest:
      return EvaluateTest(node, scope);
    case Expression::Kind::kUnary:
    case Expression::Kind::kAttribute:
    case Expression::Kind::kIndex:
    case Expression::Kind::kSlice:
      break;
  }
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.children[0], scope));
  if (node.kind == Expression::Kind::kUnary) {
    return ApplyUnary(node.text, object);
  }
  if (node.kind == Expression::Kind::kSlice) {
    return EvaluateSlice(node, object, scope);
  }
  RETURN_IF_ERROR(budget_.CountSteps(LookupCost(object)));
  if (node.kind == Expression::Kind::kAttribute) {
    return GetAttribute(object, node.text);
  }
  ASSIGN_OR_RETURN(const Value key, Evaluate(*node.children[1], scope));
  return GetItem(object, key);
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
  if (node.more_arguments != nullptr) {
    ASSIGN_OR_RETURN(const Value more, Evaluate(*node.more_arguments, scope));
    RETURN_IF_ERROR(budget_.CountSteps(Cost(more)));
    ASSIGN_OR_RETURN(const List items, Iterate(more));
    arguments.positional.insert(
        arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, argument] : node.keywords) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    arguments.keywords.emplace_back(name, std::move(value));
  }
  if (node.more_keywords == nullptr) return arguments;
  ASSIGN_OR_RETURN(const Value more, Evaluate(*node.more_keywords, scope));
  RETURN_IF_ERROR(budget_.CountSteps(Cost(more)));
  if (!more.is_dict()) {
    return absl::InvalidArgumentError("'**' needs a dict behind it");
  }
  for (const auto& [name, value] : more.dict()) {
    if (!name.is_string()) {
      return absl::InvalidArgumentError("the name of an argument is a text");
    }
    arguments.keywords.emplace_back(name.string(), value);
  }
  return arguments;
}

absl::StatusOr<List> Evaluator::EvaluateItems(const Expression& node,
                                              const Scope& scope) {
  List items;
  for (const ExpressionPtr& child : node.children) {
    ASSIGN_OR_RETURN(Value item, EvaluatePart(*child, scope));
    items.push_back(std::move(item));
  }
  return items;
}

absl::StatusOr<Value> Evaluator::EvaluateDict(const Expression& node,
                                              const Scope& scope) {
  DictBuilder dict;
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, Evaluate(*node.children[i], scope));
    ASSIGN_OR_RETURN(Value value, EvaluatePart(*node.children[i + 1], scope));
    RETURN_IF_ERROR(dict.Set(key, std::move(value)));
  }
  return Value(dict.Take());
}

absl::StatusOr<Value> Evaluator::Combine(const std::string& op,
                                         const Value& left,
                                         const Value& right) {
  RETURN_IF_ERROR(budget_.CountSteps(BinaryCost(op, left, right)));
  ASSIGN_OR_RETURN(Value result, ApplyBinary(op, left, right));
  RETURN_IF_ERROR(budget_.CountSteps(Cost(result)));
  return result;
}

absl::StatusOr<Value> Evaluator::EvaluateBinary(const Expression& node,
                                                const Scope& scope) {
  ASSIGN_OR_RETURN(const Value left, Evaluate(*node.children[0], scope));
  if (node.text == "and" && !left.Truthy()) return left;
  if (node.text == "or" && left.Truthy()) return left;
  ASSIGN_OR_RETURN(const Value right, Evaluate(*node.children[1], scope));
  if (node.text == "and" || node.text == "or") return right;
  return Combine(node.text, left, right);
}

absl::StatusOr<Value> Evaluator::EvaluateComparison(const Expression& node,
                                                    const Scope& scope) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*node.children[0], scope));
  Value holds(true);
  for (size_t i = 0; i < node.operators.size() && holds.Truthy(); ++i) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*node.children[i + 1], scope));
    ASSIGN_OR_RETURN(holds, Combine(node.operators[i], left, right));
    left = std::move(right);
  }
  return holds;
}

absl::StatusOr<Value> Evaluator::EvaluateSlice(const Expression& node,
                                               const Value& object,
                                               const Scope& scope) {
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.children[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.children[i + 1], scope));
  }
  RETURN_IF_ERROR(budget_.CountSteps(Cost(object)));
  return Slice(object, bounds[0], bounds[1], bounds[2]);
}

absl::StatusOr<Value> Evaluator::EvaluateCall(const Expression& node,
                                              const Scope& scope) {
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.children[0], scope));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node, scope));
  if (callee.is_undefined()) return RefuseUndefinedCall(callee);
  if (callee.is_macro()) {
    RETURN_IF_ERROR(budget_.CountSteps(Cost(arguments)));
    return call_macro_(callee.macro(), arguments);
  }
  if (!callee.is_object() || !callee.object().call) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", callee.TypeName(), " cannot be called"));
  }
  const Object& object = callee.object();
  if (object.self.empty()) {
    RETURN_IF_ERROR(budget_.CountSteps(Cost(arguments)));
  } else {
    RETURN_IF_ERROR(CheckMarkup(object.name, object.self[0]));
    RETURN_IF_ERROR(budget_.CountSteps(BuiltinCost(
        absl::StrCat(".", object.name), object.self[0], arguments)));
  }
  ASSIGN_OR_RETURN(Value result, object.call(arguments));
  RETURN_IF_ERROR(budget_.CountSteps(Cost(result)));
  return result;
}

absl::StatusOr<Value> Evaluator::EvaluateTest(const Expression& node,
                                              const Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.children[0], scope));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node, scope));
  RETURN_IF_ERROR(
      budget_.CountSteps(BuiltinCost(node.text, object, arguments)));
  ASSIGN_OR_RETURN(const bool holds, ApplyTest(node.text, object, arguments));
  return Value(holds);
}

absl::StatusOr<Value> Evaluator::EvaluateFilter(const Expression& node,
                                                const Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.children[0], scope));
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node, scope));
  RETURN_IF_ERROR(CheckMarkup(node.text, object));
  if (!IsLazyFilter(node.text)) return Filtered(node.text, object, arguments);
  return Value::MakeGenerator(
      [this, &node, object, arguments = std::move(arguments)]()
          -> absl::StatusOr<List> {
        ASSIGN_OR_RETURN(const Value made,
                         Filtered(node.text, object, arguments));
        return made.generator().Drain();
      });
}

absl::StatusOr<Value> Evaluator::Filtered(const std::string& name,
                                          const Value& operand,
                                          const Arguments& arguments) {
  // The items of a generator have a cost; the generator itself has none.
  Value object = operand;
  if (operand.is_generator() && GoesThrough(name)) {
    ASSIGN_OR_RETURN(List items, operand.generator().Drain());
    object = Value::MakeGenerator(std::move(items));
  }
  RETURN_IF_ERROR(budget_.CountSteps(BuiltinCost(name, object, arguments)));
  ASSIGN_OR_RETURN(Value result, ApplyFilter(name, object, arguments));
  RETURN_IF_ERROR(budget_.CountSteps(Cost(result)));
  RETURN_IF_ERROR(budget_.CheckSize(result));
  return result;
}

}  // namespace dapd::jinja
