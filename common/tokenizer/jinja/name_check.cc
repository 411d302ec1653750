#include "common/tokenizer/jinja/name_check.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/template_tests.h"

namespace dapd::jinja {
namespace {

absl::Status CheckExpression(const ExpressionPtr& node, bool is_late);

absl::Status CheckAll(const std::vector<ExpressionPtr>& nodes, bool is_late) {
  for (const ExpressionPtr& node : nodes) {
    RETURN_IF_ERROR(CheckExpression(node, is_late));
  }
  return absl::OkStatus();
}

// `is_late`: the names are looked up only when the expression is reached.
absl::Status CheckExpression(const ExpressionPtr& node, bool is_late) {
  if (node == nullptr) return absl::OkStatus();
  const bool is_filter = node->kind == Expression::Kind::kFilter;
  const bool is_test = node->kind == Expression::Kind::kTest;
  const bool is_unknown = (is_filter && !IsKnownFilter(node->text)) ||
                          (is_test && !IsKnownTest(node->text));
  if (is_unknown && !is_late) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ",
                     node->line,
                     ": there is no ",
                     is_filter ? "filter" : "test",
                     " '",
                     node->text,
                     "'"));
  }
  is_late |= node->kind == Expression::Kind::kConditional;
  RETURN_IF_ERROR(CheckAll(node->children, is_late));
  RETURN_IF_ERROR(CheckAll(node->arguments, is_late));
  for (const auto& [name, argument] : node->keywords) {
    RETURN_IF_ERROR(CheckExpression(argument, is_late));
  }
  RETURN_IF_ERROR(CheckExpression(node->more_arguments, is_late));
  return CheckExpression(node->more_keywords, is_late);
}

absl::Status CheckBlock(const Block& block, bool is_late) {
  using Kind = Statement::Kind;
  for (const auto& statement : block) {
    // The filters of these statements belong to their bodies, so jinja2 looks
    // up their names early even within an {% if %}.
    const bool has_body_of_its_own = statement->kind == Kind::kSetBody ||
                                     statement->kind == Kind::kFilterBody;
    RETURN_IF_ERROR(CheckExpression(statement->expression,
                                    is_late && !has_body_of_its_own));
    RETURN_IF_ERROR(CheckExpression(statement->filter, false));
    RETURN_IF_ERROR(CheckAll(statement->defaults, false));
    for (const auto& [target, value] : statement->assignments) {
      RETURN_IF_ERROR(CheckExpression(value, is_late));
    }
    for (const auto& [condition, body] : statement->branches) {
      RETURN_IF_ERROR(CheckExpression(condition, true));
      RETURN_IF_ERROR(CheckBlock(body, true));
    }
    RETURN_IF_ERROR(CheckBlock(statement->body, false));
    RETURN_IF_ERROR(
        CheckBlock(statement->otherwise, statement->kind == Kind::kIf));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNames(const Block& block) { return CheckBlock(block, false); }

}  // namespace dapd::jinja
