// Parses the operands of expressions: literals, names, lists and dicts, with
// what may follow them: attributes, subscripts, calls, filters and tests.
// INVALID_ARGUMENT as for ParseExpression.
#pragma once

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace dapd::jinja {

absl::StatusOr<ExpressionPtr> ParseOperand(TokenStream& in);
// Filters of `operand`: "a | b(1)".
absl::StatusOr<ExpressionPtr> ParseFilters(TokenStream& in,
                                           ExpressionPtr operand);

}  // namespace dapd::jinja
