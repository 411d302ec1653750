// Parses the expressions of a template by recursive descent. Each level of
// Jinja's grammar has its function, from the loosest to the operands, which
// operand_parser.h parses. Errors are INVALID_ARGUMENT with the line, also for
// expressions that are nested deeper than kMaxDepth.
#pragma once

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

}  // namespace dapd::jinja
