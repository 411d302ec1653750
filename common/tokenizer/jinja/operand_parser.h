// Parses the operands of expressions: literals, names, lists and dicts,
// followed by attributes, subscripts, calls, filters and tests. Errors are
// those of ParseExpression.
#pragma once

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace dapd::jinja {

absl::StatusOr<ExpressionPtr> ParseOperand(TokenStream& in);
// Parses the filters behind `operand`: "a | b(1)".
absl::StatusOr<ExpressionPtr> ParseFilters(TokenStream& in,
                                           ExpressionPtr operand);

}  // namespace dapd::jinja
