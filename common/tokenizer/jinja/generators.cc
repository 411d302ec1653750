#include "common/tokenizer/jinja/generators.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/item_filters.h"

namespace dapd::jinja {
namespace {

bool IsGenerator(const Expression& node) {
  return node.kind == Expression::Kind::kFilter &&
         (IsLazyFilter(node.text) || node.text == "items");
}

// Whether `node` goes through its child of this index, once.
bool GoesThrough(const Expression& node, size_t child) {
  if (node.kind == Expression::Kind::kBinary) {
    return child == 1 && (node.text == "in" || node.text == "not in");
  }
  return node.kind == Expression::Kind::kFilter &&
         (IsLazyFilter(node.text) || node.text == "list" ||
          node.text == "join" || node.text == "first" || node.text == "sort");
}

}  // namespace

absl::Status CheckGenerators(const Expression& expression, bool iterated) {
  if (IsGenerator(expression) && !iterated) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ",
                     expression.line,
                     ": '",
                     expression.text,
                     "' makes a generator, which is not supported here; write "
                     "'| list' after it"));
  }
  for (size_t i = 0; i < expression.children.size(); ++i) {
    if (expression.children[i] == nullptr) continue;
    RETURN_IF_ERROR(
        CheckGenerators(*expression.children[i], GoesThrough(expression, i)));
  }
  for (const ExpressionPtr& argument : expression.arguments) {
    RETURN_IF_ERROR(CheckGenerators(*argument, /*iterated=*/false));
  }
  for (const auto& [name, argument] : expression.keywords) {
    RETURN_IF_ERROR(CheckGenerators(*argument, /*iterated=*/false));
  }
  return absl::OkStatus();
}

}  // namespace dapd::jinja
