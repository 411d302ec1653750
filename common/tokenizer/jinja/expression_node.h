// Has the functions with which the parsers of expressions build their trees.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace dapd::jinja {

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
