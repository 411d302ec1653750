#include "common/tokenizer/jinja/interpreter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/evaluator.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/scope.h"

namespace dapd::jinja {
namespace {

enum class Flow { kNormal, kBreak, kContinue };

class Interpreter {
 public:
  explicit Interpreter(const Limits& limits)
      : budget_(limits),
        evaluator_(budget_,
                   [this](const Macro& macro, const Arguments& arguments) {
                     return CallMacro(macro, arguments);
                   }) {}

  absl::StatusOr<std::string> Run(const Block& block, const Dict& variables) {
    Scope scope;
    for (const auto& [name, value] : variables) scope.names[name] = value;
    RETURN_IF_ERROR(RunBlock(block, scope).status());
    return std::move(output_);
  }

 private:
  absl::Status Write(const Value& value) {
    ASSIGN_OR_RETURN(const std::string text, ToText(value));
    return Write(text);
  }
  absl::Status Write(const std::string& text) {
    RETURN_IF_ERROR(budget_.CheckOutput(output_.size() + text.size()));
    output_ += text;
    return absl::OkStatus();
  }

  absl::StatusOr<Flow> RunBlock(const Block& block, Scope& scope) {
    RETURN_IF_ERROR(budget_.Descend());
    Flow flow = Flow::kNormal;
    for (size_t i = 0; i < block.size() && flow == Flow::kNormal; ++i) {
      RETURN_IF_ERROR(budget_.CountSteps());
      ASSIGN_OR_RETURN(flow, RunStatement(*block[i], scope));
    }
    budget_.Ascend();
    return flow;
  }

  absl::StatusOr<Flow> RunStatement(const Statement& statement, Scope& scope) {
    switch (statement.kind) {
      case Statement::Kind::kText:
        RETURN_IF_ERROR(Write(statement.text));
        return Flow::kNormal;
      case Statement::Kind::kOutput: {
        ASSIGN_OR_RETURN(const Value value,
                         evaluator_.Evaluate(*statement.expression, scope));
        const absl::Status status = Write(value);
        if (!status.ok()) return AtLine(statement.line, status);
        return Flow::kNormal;
      }
      case Statement::Kind::kSet: {
        ASSIGN_OR_RETURN(Value value,
                         evaluator_.Evaluate(*statement.expression, scope));
        RETURN_IF_ERROR(Assign(statement, std::move(value), scope));
        return Flow::kNormal;
      }
      case Statement::Kind::kIf:
        for (const auto& [condition, block] : statement.branches) {
          ASSIGN_OR_RETURN(const Value value,
                           evaluator_.Evaluate(*condition, scope));
          if (value.Truthy()) return RunBlock(block, scope);
        }
        return RunBlock(statement.otherwise, scope);
      case Statement::Kind::kFor:
        return RunFor(statement, scope);
      case Statement::Kind::kScope: {
        Scope inner{.outer = &scope};
        return RunBlock(statement.body, inner);
      }
      case Statement::Kind::kMacro:
        scope.names[statement.text] = Value::MakeMacro({&statement, &scope});
        return Flow::kNormal;
      case Statement::Kind::kCall:
      case Statement::Kind::kSetBody:
      case Statement::Kind::kFilterBody:
        RETURN_IF_ERROR(RunWithBody(statement, scope));
        return Flow::kNormal;
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  // What the block writes, which goes nowhere else. Until then it stands at the
  // end of the output, whose limit goes for all texts that are not yet done.
  absl::StatusOr<Value> Capture(const Block& block, Scope& scope) {
    const size_t begin = output_.size();
    RETURN_IF_ERROR(RunBlock(block, scope).status());
    Value text(output_.substr(begin));
    output_.resize(begin);
    RETURN_IF_ERROR(budget_.CountSteps(Cost(text)));
    return text;
  }

  absl::Status RunWithBody(const Statement& statement, Scope& scope) {
    Scope inner{.outer = &scope};
    if (statement.kind == Statement::Kind::kCall) {
      inner.names[kBodyName] = Value::MakeMacro({&statement, &scope});
    } else {
      Scope body{.outer = &scope};
      ASSIGN_OR_RETURN(inner.names[kBodyName], Capture(statement.body, body));
    }
    ASSIGN_OR_RETURN(Value value,
                     evaluator_.Evaluate(*statement.expression, inner));
    if (statement.kind == Statement::Kind::kSetBody) {
      return Assign(statement, std::move(value), scope);
    }
    const absl::Status status = Write(value);
    return status.ok() ? status : AtLine(statement.line, status);
  }

  absl::StatusOr<Value> CallMacro(const Macro& macro,
                                  const Arguments& arguments) {
    Scope scope{.outer = macro.scope};
    RETURN_IF_ERROR(BindParameters(*macro.statement, arguments, scope));
    return Capture(macro.statement->body, scope);
  }

  absl::Status BindParameters(const Statement& macro,
                              const Arguments& arguments,
                              Scope& scope) {
    const std::vector<std::string>& names = macro.names;
    if (arguments.positional.size() > names.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the macro '",
                                                     macro.text,
                                                     "' takes no more than ",
                                                     names.size(),
                                                     " arguments"));
    }
    for (size_t i = 0; i < arguments.positional.size(); ++i) {
      scope.names[names[i]] = arguments.positional[i];
    }
    for (const auto& [name, value] : arguments.keywords) {
      const bool known =
          name == kCaller ||
          std::find(names.begin(), names.end(), name) != names.end();
      if (!known || !scope.names.emplace(name, value).second) {
        return absl::InvalidArgumentError(absl::StrCat("the macro '",
                                                       macro.text,
                                                       "' takes no argument '",
                                                       name,
                                                       "', or has it already"));
      }
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (scope.names.contains(names[i])) continue;
      Value value = Value::MakeUndefined(names[i]);
      if (macro.defaults[i] != nullptr) {
        ASSIGN_OR_RETURN(value, evaluator_.Evaluate(*macro.defaults[i], scope));
      }
      scope.names[names[i]] = std::move(value);
    }
    return absl::OkStatus();
  }

  absl::Status Assign(const Statement& statement, Value value, Scope& scope) {
    if (statement.names.size() == 1) {
      scope.names[statement.names[0]] = std::move(value);
      return absl::OkStatus();
    }
    const Value target = scope.Lookup(statement.names[0]);
    if (!target.is_namespace()) {
      return AtLine(statement.line,
                    absl::InvalidArgumentError(absl::StrCat(
                        "'", statement.names[0], "' is not a namespace")));
    }
    const absl::Status status = CheckPart(value);
    if (!status.ok()) return AtLine(statement.line, status);
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

  static absl::Status Bind(const Statement& loop,
                           const Value& item,
                           Scope& scope) {
    if (loop.names.size() == 1) {
      scope.names[loop.names[0]] = item;
      return absl::OkStatus();
    }
    if (!item.is_list() || item.list().size() != loop.names.size()) {
      return AtLine(
          loop.line,
          absl::InvalidArgumentError("the loop cannot unpack its items"));
    }
    for (size_t i = 0; i < loop.names.size(); ++i) {
      scope.names[loop.names[i]] = item.list()[i];
    }
    return absl::OkStatus();
  }

  absl::StatusOr<List> LoopItems(const Statement& loop, const Scope& scope) {
    ASSIGN_OR_RETURN(const Value iterated,
                     evaluator_.Evaluate(*loop.expression, scope));
    RETURN_IF_ERROR(budget_.CountSteps(Cost(iterated)));
    const auto listed = ApplyFilter("list", iterated, {});
    if (!listed.ok()) return AtLine(loop.line, listed.status());
    List items;
    for (const Value& item : listed->list()) {
      RETURN_IF_ERROR(budget_.CountSteps());
      if (loop.filter != nullptr) {
        Scope inner{.outer = &scope};
        RETURN_IF_ERROR(Bind(loop, item, inner));
        ASSIGN_OR_RETURN(const Value keep,
                         evaluator_.Evaluate(*loop.filter, inner));
        if (!keep.Truthy()) continue;
      }
      items.push_back(item);
    }
    return items;
  }

  absl::StatusOr<Flow> RunFor(const Statement& loop, Scope& scope) {
    ASSIGN_OR_RETURN(const List items, LoopItems(loop, scope));
    // As jinja2 has it: `else` is for a loop that reached its end in no
    // iteration, and one that was left early did not.
    bool reached_end = false;
    for (size_t i = 0; i < items.size(); ++i) {
      Scope inner{.outer = &scope};
      RETURN_IF_ERROR(Bind(loop, items[i], inner));
      inner.names["loop"] = LoopVariable(items, i);
      ASSIGN_OR_RETURN(const Flow flow, RunBlock(loop.body, inner));
      if (flow == Flow::kBreak) break;
      if (flow == Flow::kNormal) reached_end = true;
    }
    return reached_end ? Flow::kNormal : RunBlock(loop.otherwise, scope);
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

  Budget budget_;
  Evaluator evaluator_;
  std::string output_;
};

}  // namespace

absl::StatusOr<std::string> Run(const Block& block,
                                const Dict& variables,
                                const Limits& limits) {
  return Interpreter(limits).Run(block, variables);
}

}  // namespace dapd::jinja
