// Defines the syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    kLiteral,      // value
    kName,         // text
    kList,         // children
    kTuple,        // children
    kDict,         // children: key, value, key, value, ...
    kAttribute,    // children[0] . text
    kIndex,        // children[0] [ children[1] ]
    kSlice,        // children[0] [ children[1] : children[2] : children[3] ],
                   // absent parts are null
    kUnary,        // text: "not", "-", "+"
    kBinary,       // text: the operator, "and", "or"
    kComparison,   // operators between two children each, also "in" and "not
                   // in"
    kConditional,  // children: condition, then, else (may be null)
    kFilter,       // children[0] | text (arguments)
    kTest,         // children[0] is text (arguments)
    kCall          // children[0] (arguments)
  };
  Kind kind = Kind::kLiteral;
  int line = 1;
  int depth = 1;  // levels of expressions, including this one
  std::string text;
  Value value;
  std::vector<std::string> operators;
  std::vector<ExpressionPtr> children;
  std::vector<ExpressionPtr> arguments;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr more_arguments;  // behind "*"; may be null
  ExpressionPtr more_keywords;   // behind "**"; may be null
};

// Describes the target of an assignment: a name, an entry of a namespace, or
// several targets for the items of a sequence.
struct Target {
  std::string name;   // variable or namespace; empty if `parts` is used
  std::string entry;  // entry of the namespace; empty for a variable
  std::vector<Target> parts;
};

// A body's text has this name in the expression of its statement; for kCall,
// the macro that writes the body has it. No template can write this name.
inline constexpr char kBodyName[] = "";
// A macro calls the body of the {% call %} that called it by this name.
inline constexpr char kCaller[] = "caller";

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind {
    kText,        // text
    kOutput,      // expression
    kSet,         // target = expression
    kIf,          // branches, `otherwise`
    kFor,         // target in expression if filter: body; `otherwise` if no
                  // iteration reached the body's end
    kWith,        // targets = values, evaluated in the outer scope: body
    kScope,       // body with a scope of its own
    kBlock,       // body that sees the names outside of all blocks
    kAutoescape,  // expression: body
    kMacro,       // text: its name; names: its parameters, with their defaults
    kCall,        // expression calls a macro; `text` names the macro that the
                  // called macro knows as `caller`, with the parameters `names`
                  // and their defaults
    kSetBody,     // target as for kSet; expression
    kFilterBody,  // writes expression
    kBreak,
    kContinue,
    kRefused  // text: a tag that needs other templates
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text;
  Target target;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  // as many as names; null without a
                                        // default
  ExpressionPtr expression;
  ExpressionPtr filter;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block body;
  Block otherwise;
  bool is_recursive = false;     // for a loop
  bool takes_arguments = false;  // for a macro: any number of arguments, as
                                 // `varargs`
  bool takes_keywords = false;   // for a macro: any names, as `kwargs`
};

}  // namespace dapd::jinja
