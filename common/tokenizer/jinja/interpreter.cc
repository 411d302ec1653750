#include "common/tokenizer/jinja/interpreter.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"

namespace dapd::jinja {
namespace {

enum class Flow { kNormal, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(const Dict& variables, const Limits& limits) : budget_(limits) {
    scopes_.emplace_back();
    for (const auto& [name, value] : variables) scopes_[0][name] = value;
  }

  absl::StatusOr<std::string> Run(const Block& block) {
    RETURN_IF_ERROR(RunBlock(block).status());
    return std::move(output_);
  }

 private:
  static absl::Status Error(int line, const absl::Status& status) {
    return absl::Status(
        status.code(),
        absl::StrCat("line ", line, ": ", std::string(status.message())));
  }
  static absl::Status Refuse(const std::string& problem) {
    return absl::InvalidArgumentError(problem);
  }

  absl::Status Write(const std::string& text) {
    RETURN_IF_ERROR(budget_.CheckOutput(output_.size() + text.size()));
    output_ += text;
    return absl::OkStatus();
  }

  absl::StatusOr<Flow> RunBlock(const Block& block) {
    for (const auto& statement : block) {
      RETURN_IF_ERROR(budget_.CountSteps());
      absl::StatusOr<Flow> flow = RunStatement(*statement);
      if (!flow.ok() || *flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  absl::StatusOr<Flow> RunStatement(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText:
        RETURN_IF_ERROR(Write(statement.text));
        return Flow::kNormal;
      case Statement::Kind::kOutput: {
        ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
        const auto text = ToText(value);
        if (!text.ok()) return Error(statement.line, text.status());
        RETURN_IF_ERROR(Write(*text));
        return Flow::kNormal;
      }
      case Statement::Kind::kSet: {
        ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expression));
        RETURN_IF_ERROR(Assign(statement, std::move(value)));
        return Flow::kNormal;
      }
      case Statement::Kind::kIf:
        for (const auto& [condition, block] : statement.branches) {
          ASSIGN_OR_RETURN(const Value value, Evaluate(*condition));
          if (value.Truthy()) return RunBlock(block);
        }
        return RunBlock(statement.otherwise);
      case Statement::Kind::kFor:
        return RunFor(statement);
      case Statement::Kind::kScope: {
        scopes_.emplace_back();
        ASSIGN_OR_RETURN(const Flow flow, RunBlock(statement.body));
        scopes_.pop_back();
        return flow;
      }
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  absl::Status Assign(const Statement& statement, Value value) {
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = std::move(value);
      return absl::OkStatus();
    }
    const Value target = Lookup(statement.names[0]);
    if (!target.is_namespace()) {
      return Error(statement.line,
                   Refuse(absl::StrCat(
                       "'", statement.names[0], "' is not a namespace")));
    }
    if (value.is_namespace()) return Error(statement.line, NamespaceInside());
    RETURN_IF_ERROR(budget_.CountSteps(LookupCost(target)));
    for (auto& [name, entry] : target.entries()) {
      if (name == statement.names[1]) {
        entry = std::move(value);
        return absl::OkStatus();
      }
    }
    target.entries().emplace_back(statement.names[1], std::move(value));
    return absl::OkStatus();
  }

  absl::Status Bind(const Statement& loop, const Value& item) {
    if (loop.names.size() == 1) {
      scopes_.back()[loop.names[0]] = item;
      return absl::OkStatus();
    }
    if (!item.is_list() || item.list().size() != loop.names.size()) {
      return Error(loop.line, Refuse("the loop cannot unpack its items"));
    }
    for (size_t i = 0; i < loop.names.size(); ++i) {
      scopes_.back()[loop.names[i]] = item.list()[i];
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Flow> RunFor(const Statement& loop) {
    ASSIGN_OR_RETURN(const Value iterated, Evaluate(*loop.expression));
    RETURN_IF_ERROR(budget_.CountSteps(Cost(iterated)));
    const auto listed = ApplyFilter("list", iterated, {});
    if (!listed.ok()) return Error(loop.line, listed.status());
    List items;
    for (const Value& item : listed->list()) {
      RETURN_IF_ERROR(budget_.CountSteps());
      if (loop.filter != nullptr) {
        scopes_.emplace_back();
        RETURN_IF_ERROR(Bind(loop, item));
        ASSIGN_OR_RETURN(const Value keep, Evaluate(*loop.filter));
        scopes_.pop_back();
        if (!keep.Truthy()) continue;
      }
      items.push_back(item);
    }
    // As jinja2 has it: `else` is for a loop that reached its end in no
    // iteration, and one that was left early did not.
    bool reached_end = false;
    for (size_t i = 0; i < items.size(); ++i) {
      scopes_.emplace_back();
      RETURN_IF_ERROR(Bind(loop, items[i]));
      scopes_.back()["loop"] = LoopVariable(items, i);
      ASSIGN_OR_RETURN(const Flow flow, RunBlock(loop.body));
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
      if (flow == Flow::kNormal) reached_end = true;
    }
    return reached_end ? Flow::kNormal : RunBlock(loop.otherwise);
  }

  static Value LoopVariable(const List& items, size_t i) {
    const auto index = static_cast<int64_t>(i);
    const auto size = static_cast<int64_t>(items.size());
    Dict loop = {{"index0", Value(index)},
                 {"index", Value(index + 1)},
                 {"revindex0", Value(size - index - 1)},
                 {"revindex", Value(size - index)},
                 {"first", Value(index == 0)},
                 {"last", Value(index + 1 == size)},
                 {"length", Value(size)},
                 // No loop is recursive.
                 {"depth0", Value(int64_t{0})},
                 {"depth", Value(int64_t{1})}};
    if (i > 0) loop.emplace_back("previtem", items[i - 1]);
    if (i + 1 < items.size()) loop.emplace_back("nextitem", items[i + 1]);
    return Value(std::move(loop));
  }

  Value Lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return found->second;
    }
    return Value::MakeUndefined(name);
  }

  absl::StatusOr<Value> Evaluate(const Expression& node) {
    RETURN_IF_ERROR(budget_.CountSteps());
    absl::StatusOr<Value> value = EvaluateNode(node);
    if (value.ok()) {
      const absl::Status status = budget_.CheckSize(*value);
      if (!status.ok()) value = status;
    }
    // The innermost place names the line.
    if (!value.ok() && value.status().message().substr(0, 5) != "line ") {
      return Error(node.line, value.status());
    }
    return value;
  }

  // A value that becomes a part of another one.
  absl::StatusOr<Value> EvaluatePart(const Expression& node) {
    ASSIGN_OR_RETURN(Value value, Evaluate(node));
    if (value.is_namespace()) return NamespaceInside();
    return value;
  }
  static absl::Status NamespaceInside() {
    return Refuse("a namespace inside another value is not supported");
  }

  absl::StatusOr<Arguments> EvaluateArguments(const Expression& node) {
    Arguments arguments;
    for (const ExpressionPtr& argument : node.arguments) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
      arguments.positional.push_back(std::move(value));
    }
    for (const auto& [name, argument] : node.keywords) {
      ASSIGN_OR_RETURN(Value value, EvaluatePart(*argument));
      arguments.keywords.emplace_back(name, std::move(value));
    }
    return arguments;
  }

  absl::StatusOr<Value> EvaluateNode(const Expression& node) {
    switch (node.kind) {
      case Expression::Kind::kLiteral:
        return node.value;
      case Expression::Kind::kName:
        return Lookup(node.text);
      case Expression::Kind::kList: {
        List items;
        for (const ExpressionPtr& child : node.children) {
          ASSIGN_OR_RETURN(Value item, EvaluatePart(*child));
          items.push_back(std::move(item));
        }
        return Value(std::move(items));
      }
      case Expression::Kind::kDict:
        return EvaluateDict(node);
      case Expression::Kind::kUnary:
        return EvaluateUnary(node);
      case Expression::Kind::kBinary:
        return EvaluateBinary(node);
      case Expression::Kind::kConditional: {
        ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.children[0]));
        if (condition.Truthy()) return Evaluate(*node.children[1]);
        if (node.children[2] == nullptr) return Value();
        return Evaluate(*node.children[2]);
      }
      case Expression::Kind::kCall: {
        ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node));
        ASSIGN_OR_RETURN(Value result, CallFunction(node.text, arguments));
        RETURN_IF_ERROR(budget_.CountSteps(Cost(result)));
        return result;
      }
      default:
        break;
    }
    ASSIGN_OR_RETURN(const Value object, Evaluate(*node.children[0]));
    switch (node.kind) {
      case Expression::Kind::kAttribute:
        RETURN_IF_ERROR(budget_.CountSteps(LookupCost(object)));
        return GetItem(object, Value(node.text));
      case Expression::Kind::kIndex: {
        ASSIGN_OR_RETURN(const Value key, Evaluate(*node.children[1]));
        RETURN_IF_ERROR(budget_.CountSteps(LookupCost(object)));
        return GetItem(object, key);
      }
      case Expression::Kind::kSlice: {
        Value bounds[3];
        for (int i = 0; i < 3; ++i) {
          if (node.children[i + 1] == nullptr) continue;
          ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.children[i + 1]));
        }
        RETURN_IF_ERROR(budget_.CountSteps(Cost(object)));
        return Slice(object, bounds[0], bounds[1], bounds[2]);
      }
      default:
        break;
    }
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node));
    return CallBuiltin(node, object, arguments);
  }

  absl::StatusOr<Value> CallBuiltin(const Expression& node,
                                    const Value& object,
                                    const Arguments& arguments) {
    RETURN_IF_ERROR(
        budget_.CountSteps(BuiltinCost(node.text, object, arguments)));
    RETURN_IF_ERROR(CheckArguments(node.text, arguments));
    if (node.kind == Expression::Kind::kTest) {
      ASSIGN_OR_RETURN(const bool holds,
                       ApplyTest(node.text, object, arguments));
      return Value(holds);
    }
    ASSIGN_OR_RETURN(Value result,
                     node.kind == Expression::Kind::kFilter
                         ? ApplyFilter(node.text, object, arguments)
                         : CallMethod(node.text, object, arguments));
    RETURN_IF_ERROR(budget_.CountSteps(Cost(result)));
    return result;
  }

  absl::StatusOr<Value> EvaluateDict(const Expression& node) {
    Dict dict;
    for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
      ASSIGN_OR_RETURN(const Value key, Evaluate(*node.children[i]));
      ASSIGN_OR_RETURN(Value value, EvaluatePart(*node.children[i + 1]));
      if (!key.is_string()) return Refuse("a dict's key is not a string");
      dict.emplace_back(key.string(), std::move(value));
    }
    return Value(std::move(dict));
  }

  absl::StatusOr<Value> EvaluateUnary(const Expression& node) {
    ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.children[0]));
    return ApplyUnary(node.text, operand);
  }

  absl::StatusOr<Value> EvaluateBinary(const Expression& node) {
    ASSIGN_OR_RETURN(const Value left, Evaluate(*node.children[0]));
    if (node.text == "and" && !left.Truthy()) return left;
    if (node.text == "or" && left.Truthy()) return left;
    ASSIGN_OR_RETURN(const Value right, Evaluate(*node.children[1]));
    if (node.text == "and" || node.text == "or") return right;
    RETURN_IF_ERROR(budget_.CountSteps(BinaryCost(node.text, left, right)));
    return ApplyBinary(
        node.text, left, right, budget_.limits().max_output_bytes);
  }

  Budget budget_;
  std::string output_;
  std::vector<std::map<std::string, Value>> scopes_;
};

}  // namespace

absl::StatusOr<std::string> Run(const Block& block,
                                const Dict& variables,
                                const Limits& limits) {
  return Interpreter(variables, limits).Run(block);
}

}  // namespace dapd::jinja
