// Parses the operands of expressions: literals, names, lists and dicts, with
// what may follow them: attributes, subscripts, calls, filters and tests. Names
// of filters, tests, methods and functions that the interpreter does not know
// are refused here.
#pragma once

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace dapd::jinja {

// INVALID_ARGUMENT as for ParseExpression, which sees to generators.
absl::StatusOr<ExpressionPtr> ParseOperand(TokenStream& in);
// Filters of `operand`: "a | b(1)".
absl::StatusOr<ExpressionPtr> ParseFilterChain(TokenStream& in,
                                               ExpressionPtr operand);

}  // namespace dapd::jinja
