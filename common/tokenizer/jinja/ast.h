// The syntax tree of a template.
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
                   // absent parts null
    kUnary,        // text: "not", "-", "+"
    kBinary,       // text: the operator, "and", "or"
    kComparison,   // operators between each two children, "in", "not in" too
    kConditional,  // children: condition, then, else (may be null)
    kFilter,       // children[0] | text (arguments)
    kTest,         // children[0] is text (arguments)
    kCall          // children[0] (arguments)
  };
  Kind kind = Kind::kLiteral;
  int line = 1;
  int depth = 1;  // levels of expressions, this one included
  std::string text;
  Value value;
  std::vector<std::string> operators;
  std::vector<ExpressionPtr> children;
  std::vector<ExpressionPtr> arguments;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr more_arguments;  // behind "*"; may be null
  ExpressionPtr more_keywords;   // behind "**"; may be null
};

// The place that takes a value: a name, an entry of a namespace, or several
// targets that take its items.
struct Target {
  std::string name;   // of the variable or the namespace; empty: `parts`
  std::string entry;  // of the namespace; empty: none
  std::vector<Target> parts;
};

// What the text of a body is called in the expression of its statement; for
// kCall, the macro that writes the body. No template can write this name.
inline constexpr char kBodyName[] = "";
// What a macro calls the body of the {% call %} that called it.
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
    kWith,        // targets = values, which see nothing of each other: body
    kScope,       // body, whose names are its own
    kBlock,       // body, which sees the names outside of all blocks
    kAutoescape,  // expression: body
    kMacro,       // text: its name; names: its parameters, with their defaults
    kCall,     // expression, a macro's text; what the macro calls `caller` has
               // names as its parameters, with their defaults
    kSetBody,  // target as for kSet; expression
    kFilterBody,  // expression is written
    kBreak,
    kContinue,
    kRefused  // text: a tag that needs other templates
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text;
  Target target;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  // as many as names; null: none
  ExpressionPtr expression;
  ExpressionPtr filter;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block body;
  Block otherwise;
  bool is_recursive = false;     // of a loop
  bool takes_arguments = false;  // of a macro: any number, as `varargs`
  bool takes_keywords = false;   // and any names, as `kwargs`
};

}  // namespace dapd::jinja
