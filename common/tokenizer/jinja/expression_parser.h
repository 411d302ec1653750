// Parses expressions, a function per level of Jinja's grammar, from the loosest
// operator down to operands: literals, names, lists and dicts, with the
// attributes, subscripts, calls, filters and tests behind them.
// INVALID_ARGUMENT with the line, also for an expression that is nested deeper
// than kMaxDepth.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace dapd::jinja {

absl::StatusOr<ExpressionPtr> ParseExpression(TokenStream& in);
// One expression, or a tuple of several with commas between them and no
// brackets around them.
absl::StatusOr<ExpressionPtr> ParseTuple(TokenStream& in);
// The same for {% if %} and for what a loop goes through: up to an `if`, which
// belongs to the loop.
absl::StatusOr<ExpressionPtr> ParseCondition(TokenStream& in);

// Applies the filters that follow to `operand`: "a | b(1)".
absl::StatusOr<ExpressionPtr> ParseFilters(TokenStream& in,
                                           ExpressionPtr operand);

// The parser of tags builds its trees with these, too.

// A node in the line of the next token.
inline ExpressionPtr MakeNode(const TokenStream& in,
                              Expression::Kind kind,
                              std::string text = "") {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = in.Peek().line;
  node->text = std::move(text);
  return node;
}

// Makes `child` (which may be null) a part of `node`.
inline void Adopt(Expression& node,
                  std::vector<ExpressionPtr>& parts,
                  ExpressionPtr child) {
  if (child != nullptr) node.depth = std::max(node.depth, child->depth + 1);
  parts.push_back(std::move(child));
}

// A chain such as a + b + c grows deep without the parser recursing.
inline absl::Status CheckDepth(const TokenStream& in, const Expression& node) {
  return node.depth > kMaxDepth ? in.TooDeep() : absl::OkStatus();
}

}  // namespace dapd::jinja
