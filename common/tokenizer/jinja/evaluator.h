// Evaluator computes the expressions of a template.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/budget.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Holds the names of a block of a template, and knows the blocks around it.
struct Scope {
  const Scope* outer = nullptr;  // must outlive this scope
  std::map<std::string, Value> names;

  // Returns undefined if no scope has the name.
  Value Lookup(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return found->second;
    }
    return Value::MakeUndefined(name);
  }
};

// Puts "line N: " in front of the error's message.
absl::Status AtLine(int line, const absl::Status& status);

class Evaluator {
 public:
  using CallMacro =
      std::function<absl::StatusOr<Value>(const Macro&, const Arguments&)>;

  // `budget` must outlive the evaluator.
  Evaluator(Budget& budget, CallMacro call_macro);

  // Returns INVALID_ARGUMENT for operands and arguments that operators, filters
  // and functions refuse, and RESOURCE_EXHAUSTED past the budget; the message
  // has the line. A returned generator must not outlive the evaluator.
  absl::StatusOr<Value> Evaluate(const Expression& node, const Scope& scope);

 private:
  absl::StatusOr<Value> EvaluateNode(const Expression& node,
                                     const Scope& scope);
  // Evaluates a value that becomes part of another value.
  absl::StatusOr<Value> EvaluatePart(const Expression& node,
                                     const Scope& scope);
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& node,
                                              const Scope& scope);
  absl::StatusOr<List> EvaluateItems(const Expression& node,
                                     const Scope& scope);
  absl::StatusOr<Value> EvaluateDict(const Expression& node,
                                     const Scope& scope);
  absl::StatusOr<Value> EvaluateBinary(const Expression& node,
                                       const Scope& scope);
  absl::StatusOr<Value> EvaluateComparison(const Expression& node,
                                           const Scope& scope);
  absl::StatusOr<Value> EvaluateSlice(const Expression& node,
                                      const Value& object,
                                      const Scope& scope);
  absl::StatusOr<Value> EvaluateCall(const Expression& node,
                                     const Scope& scope);
  absl::StatusOr<Value> EvaluateTest(const Expression& node,
                                     const Scope& scope);
  absl::StatusOr<Value> EvaluateFilter(const Expression& node,
                                       const Scope& scope);
  absl::StatusOr<Value> Filtered(const std::string& name,
                                 const Value& operand,
                                 const Arguments& arguments);
  absl::StatusOr<Value> Combine(const std::string& op,
                                const Value& left,
                                const Value& right);

  Budget& budget_;
  const CallMacro call_macro_;
};

}  // namespace dapd::jinja
