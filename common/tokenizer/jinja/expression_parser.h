// Parses the expressions of a template, by recursive descent: a function a
// level of Jinja's grammar, loosest first, down to the operands, which
// operand_parser.h parses.
#pragma once

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace dapd::jinja {

// INVALID_ARGUMENT with the line, also for what is nested deeper than
// kMaxDepth.
absl::StatusOr<ExpressionPtr> ParseExpression(TokenStream& in);
// What a loop goes through: up to an `if`, which belongs to the loop.
absl::StatusOr<ExpressionPtr> ParseIterated(TokenStream& in);

// A part of an expression, of whose generators the whole has to judge.
absl::StatusOr<ExpressionPtr> ParsePart(TokenStream& in);
// Filters of `operand`: "a | b(1)".
absl::StatusOr<ExpressionPtr> ParseFilters(TokenStream& in,
                                           ExpressionPtr operand);

}  // namespace dapd::jinja
