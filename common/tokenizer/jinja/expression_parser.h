// Parses expressions. Each level of Jinja's grammar has its function, from the
// loosest operator down to operands: literals, names, lists and dicts, with the
// attributes, subscripts, calls, filters and tests behind them. Errors are
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
// Parses an expression, or a tuple of several expressions that are separated by
// commas and not enclosed in brackets.
absl::StatusOr<ExpressionPtr> ParseTuple(TokenStream& in);
// Parses the condition of {% if %}, or the iterable of a loop up to an `if`,
// which belongs to the loop.
absl::StatusOr<ExpressionPtr> ParseCondition(TokenStream& in);

// Parses the filters behind `operand`: "a | b(1)".
absl::StatusOr<ExpressionPtr> ParseFilters(TokenStream& in,
                                           ExpressionPtr operand);

// The parser of tags builds its trees with the following functions, too.

// The node's line is the line of the next token.
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

// A chain such as a + b + c grows deep without recursion of the parser.
inline absl::Status CheckDepth(const TokenStream& in, const Expression& node) {
  return node.depth > kMaxDepth ? in.TooDeep() : absl::OkStatus();
}

}  // namespace dapd::jinja
