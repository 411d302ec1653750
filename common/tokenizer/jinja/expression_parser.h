// Parses the expressions of a template, by recursive descent: a function a
// level of Jinja's grammar, loosest first, down to the operands, which
// operand_parser.h parses. INVALID_ARGUMENT with the line, also for what is
// nested deeper than kMaxDepth.
#pragma once

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

}  // namespace dapd::jinja
