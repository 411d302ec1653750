#include "common/tokenizer/jinja/interpreter.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/evaluator.h"
#include "common/tokenizer/jinja/globals.h"
#include "common/tokenizer/jinja/python_repr.h"

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

  absl::StatusOr<std::string> Run(const Block& block, const Names& variables) {
    Scope globals;
    for (const auto& [name, value] : Globals()) globals.names[name] = value;
    root_.outer = &globals;
    for (const auto& [name, value] : variables) root_.names[name] = value;
    RETURN_IF_ERROR(RunBlock(block, root_).status());
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
        RETURN_IF_ERROR(Assign(statement.target, value, statement.line, scope));
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
      case Statement::Kind::kWith: {
        Scope inner{.outer = &scope};
        for (const auto& [target, expression] : statement.assignments) {
          ASSIGN_OR_RETURN(const Value value,
                           evaluator_.Evaluate(*expression, scope));
          RETURN_IF_ERROR(Assign(target, value, statement.line, inner));
        }
        return RunBlock(statement.body, inner);
      }
      case Statement::Kind::kBlock: {
        Scope inner{.outer = &root_};
        return RunBlock(statement.body, inner);
      }
      case Statement::Kind::kAutoescape: {
        ASSIGN_OR_RETURN(const Value escapes,
                         evaluator_.Evaluate(*statement.expression, scope));
        if (escapes.Truthy()) {
          return AtLine(statement.line,
                        absl::InvalidArgumentError(
                            "'autoescape' is not supported; write '| escape'"));
        }
        Scope inner{.outer = &scope};
        return RunBlock(statement.body, inner);
      }
      case Statement::Kind::kRefused:
        return AtLine(statement.line,
                      absl::InvalidArgumentError(absl::StrCat(
                          "the tag '",
                          statement.text,
                          "' is not supported: a chat template stands alone")));
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

  // Returns the block's output without writing it. Until the block ends, its
  // text is at the end of the output, so that the output's limit covers all
  // unfinished texts.
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
      return Assign(statement.target, value, statement.line, scope);
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
    const List& given = arguments.positional;
    const size_t bound = std::min(given.size(), names.size());
    if (given.size() > names.size() && !macro.takes_arguments) {
      return absl::InvalidArgumentError(absl::StrCat("the macro '",
                                                     macro.text,
                                                     "' takes no more than ",
                                                     names.size(),
                                                     " arguments"));
    }
    for (size_t i = 0; i < bound; ++i) scope.names[names[i]] = given[i];
    if (macro.takes_arguments) {
      List more(given.begin() + static_cast<int64_t>(bound), given.end());
      for (const Value& value : more) RETURN_IF_ERROR(CheckPart(value));
      scope.names["varargs"] = Value(std::move(more), Shape::kTuple);
    }
    DictBuilder more;
    for (const auto& [name, value] : arguments.keywords) {
      const bool known =
          name == kCaller ||
          std::find(names.begin(), names.end(), name) != names.end();
      if (!known && macro.takes_keywords) {
        RETURN_IF_ERROR(CheckPart(value));
        more.Set(name, value);
      } else if (!known || !scope.names.emplace(name, value).second) {
        return absl::InvalidArgumentError(absl::StrCat("the macro '",
                                                       macro.text,
                                                       "' takes no argument '",
                                                       name,
                                                       "', or got it twice"));
      }
    }
    if (macro.takes_keywords) scope.names["kwargs"] = Value(more.Take());
    scope.names.emplace(kCaller, Value::MakeUndefined(kCaller));
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

  absl::Status Assign(const Target& target,
                      const Value& value,
                      int line,
                      Scope& scope) {
    if (!target.entry.empty()) {
      const absl::Status status = SetEntry(target, value, scope);
      return status.ok() ? status : AtLine(line, status);
    }
    if (target.parts.empty()) {
      scope.names[target.name] = value;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(budget_.CountSteps(Cost(value)));
    const auto items = Iterate(value);
    if (!items.ok()) return AtLine(line, items.status());
    if (items->size() != target.parts.size()) {
      return AtLine(line,
                    absl::InvalidArgumentError(
                        absl::StrCat(items->size(),
                                     " items cannot be unpacked into ",
                                     target.parts.size(),
                                     " names")));
    }
    for (size_t i = 0; i < items->size(); ++i) {
      RETURN_IF_ERROR(Assign(target.parts[i], (*items)[i], line, scope));
    }
    return absl::OkStatus();
  }

  absl::Status SetEntry(const Target& target,
                        const Value& value,
                        const Scope& scope) {
    const Value object = scope.Lookup(target.name);
    if (!object.is_namespace()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", target.name, "' is not a namespace"));
    }
    RETURN_IF_ERROR(CheckEntryName(target.entry));
    RETURN_IF_ERROR(CheckPart(value));
    RETURN_IF_ERROR(budget_.CountSteps(LookupCost(object)));
    for (auto& [name, entry] : object.entries()) {
      if (name.is_string() && name.string() == target.entry) {
        entry = value;
        return absl::OkStatus();
      }
    }
    object.entries().emplace_back(Value(target.entry), value);
    return absl::OkStatus();
  }

  absl::StatusOr<List> LoopItems(const Statement& loop,
                                 const Value& iterated,
                                 const Scope& scope) {
    const auto listed = Iterate(iterated);
    if (!listed.ok()) {
      // An error within a generator already names its line.
      return absl::StartsWith(listed.status().message(), "line ")
                 ? listed.status()
                 : AtLine(loop.line, listed.status());
    }
    RETURN_IF_ERROR(budget_.CountSteps(static_cast<int64_t>(listed->size())));
    if (loop.filter == nullptr) return *listed;
    List items;
    for (const Value& item : *listed) {
      Scope inner{.outer = &scope};
      RETURN_IF_ERROR(Assign(loop.target, item, loop.line, inner));
      ASSIGN_OR_RETURN(const Value keep,
                       evaluator_.Evaluate(*loop.filter, inner));
      if (keep.Truthy()) items.push_back(item);
    }
    return items;
  }

  absl::StatusOr<Flow> RunFor(const Statement& loop, Scope& scope) {
    ASSIGN_OR_RETURN(const Value iterated,
                     evaluator_.Evaluate(*loop.expression, scope));
    RETURN_IF_ERROR(budget_.CountSteps(Cost(iterated)));
    return RunLoop(loop, iterated, /*depth=*/1, scope);
  }

  absl::StatusOr<Flow> RunLoop(const Statement& loop,
                               const Value& iterated,
                               int64_t depth,
                               Scope& scope) {
    const auto state = std::make_shared<LoopState>();
    state->depth = depth;
    ASSIGN_OR_RETURN(state->items, LoopItems(loop, iterated, scope));
    const Value variable = LoopVariable(loop, state, scope);
    // As in jinja2, `else` runs if no iteration reached the end of the body; an
    // iteration that was left early did not reach it.
    bool reached_end = false;
    for (; state->at < state->items.size(); ++state->at) {
      Scope inner{.outer = &scope};
      RETURN_IF_ERROR(
          Assign(loop.target, state->items[state->at], loop.line, inner));
      inner.names["loop"] = variable;
      ASSIGN_OR_RETURN(const Flow flow, RunBlock(loop.body, inner));
      if (flow == Flow::kBreak) break;
      if (flow == Flow::kNormal) reached_end = true;
    }
    return reached_end ? Flow::kNormal : RunBlock(loop.otherwise, scope);
  }

  // Holds the state of a loop, and the value that its `changed` was last called
  // with.
  struct LoopState {
    List items;
    size_t at = 0;
    int64_t depth = 1;
    std::optional<Value> last;
  };

  // Makes the variable `loop`. A call of it returns what the loop writes for
  // the items of the argument.
  Value LoopVariable(const Statement& loop,
                     const std::shared_ptr<LoopState>& state,
                     Scope& scope) {
    return Value::MakeObject(
        {.name = "loop",
         .self = {},
         .call = [this, &loop, state, &scope](
                     const Arguments& arguments) -> absl::StatusOr<Value> {
           if (!loop.is_recursive || arguments.positional.size() != 1) {
             return absl::InvalidArgumentError(
                 "only a 'recursive' loop can be called, with the items to go "
                 "through");
           }
           const size_t begin = output_.size();
           RETURN_IF_ERROR(
               RunLoop(loop, arguments.positional[0], state->depth + 1, scope)
                   .status());
           Value text(output_.substr(begin));
           output_.resize(begin);
           return text;
         },
         .attribute =
             [state](const std::string& name) {
               return LoopAttribute(name, state);
             }});
  }

  static Value LoopAttribute(const std::string& name,
                             const std::shared_ptr<LoopState>& state) {
    const auto at = static_cast<int64_t>(state->at);
    const auto size = static_cast<int64_t>(state->items.size());
    if (name == "index0") return Value(at);
    if (name == "index") return Value(at + 1);
    if (name == "revindex0") return Value(size - at - 1);
    if (name == "revindex") return Value(size - at);
    if (name == "first") return Value(at == 0);
    if (name == "last") return Value(at + 1 == size);
    if (name == "length") return Value(size);
    if (name == "depth") return Value(state->depth);
    if (name == "depth0") return Value(state->depth - 1);
    if (name == "previtem" && at > 0) return state->items[state->at - 1];
    if (name == "nextitem" && at + 1 < size) return state->items[state->at + 1];
    if (name == "cycle" || name == "changed") {
      return Value::MakeObject(
          {.name = name,
           .self = {},
           .call = [state, cycles = name == "cycle"](
                       const Arguments& arguments) -> absl::StatusOr<Value> {
             const List& given = arguments.positional;
             if (cycles) {
               if (given.empty()) {
                 return absl::InvalidArgumentError("cycle needs items");
               }
               return given[state->at % given.size()];
             }
             for (const Value& value : given) RETURN_IF_ERROR(CheckPart(value));
             Value now(given, Shape::kTuple);
             const bool changed =
                 !state->last.has_value() || !state->last->Equals(now);
             state->last = std::move(now);
             return Value(changed);
           },
           .attribute = nullptr});
    }
    return Value::MakeUndefined(name);
  }

  Scope root_;
  Budget budget_;
  Evaluator evaluator_;
  std::string output_;
};

}  // namespace

absl::StatusOr<std::string> Run(const Block& block,
                                const Names& variables,
                                const Limits& limits) {
  return Interpreter(limits).Run(block, variables);
}

}  // namespace dapd::jinja
