// Parses the expressions of a template, by recursive descent: a function a
// level of Jinja's grammar, loosest first. Names of filters, tests, methods and
// functions that the interpreter does not know are refused here.
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

}  // namespace dapd::jinja
