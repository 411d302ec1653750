#include "common/tokenizer/jinja/expression_parser.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/expression_node.h"
#include "common/tokenizer/jinja/operand_parser.h"

namespace dapd::jinja {
namespace {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in) {}

  absl::StatusOr<ExpressionPtr> ParseExpression() {
    RETURN_IF_ERROR(in_.Descend());
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
    while (in_.TakeName("if")) {
      ExpressionPtr node = MakeNode(in_, Expression::Kind::kConditional);
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
      ExpressionPtr otherwise;
      if (in_.TakeName("else")) {
        ASSIGN_OR_RETURN(otherwise, ParseExpression());
      }
      Adopt(*node, node->children, std::move(condition));
      Adopt(*node, node->children, std::move(value));
      Adopt(*node, node->children, std::move(otherwise));
      RETURN_IF_ERROR(CheckDepth(in_, *node));
      value = std::move(node);
    }
    in_.Ascend();
    return value;
  }

  absl::StatusOr<ExpressionPtr> ParseTuple(bool with_conditional) {
    ExpressionPtr tuple = MakeNode(in_, Expression::Kind::kTuple);
    do {
      if (!tuple->children.empty() && EndsTuple()) return tuple;
      ASSIGN_OR_RETURN(ExpressionPtr item,
                       with_conditional ? ParseExpression() : ParseOr());
      if (tuple->children.empty() && !in_.IsOperator(",")) return item;
      Adopt(*tuple, tuple->children, std::move(item));
    } while (in_.TakeOperator(","));
    return tuple;
  }

  absl::StatusOr<ExpressionPtr> ParseOr() {
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
    while (in_.TakeName("or")) {
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
      ASSIGN_OR_RETURN(left,
                       MakeBinary("or", std::move(left), std::move(right)));
    }
    return left;
  }

 private:
  using Kind = Token::Kind;

  absl::StatusOr<ExpressionPtr> MakeBinary(std::string text,
                                           ExpressionPtr left,
                                           ExpressionPtr right) const {
    ExpressionPtr node =
        MakeNode(in_, Expression::Kind::kBinary, std::move(text));
    Adopt(*node, node->children, std::move(left));
    Adopt(*node, node->children, std::move(right));
    RETURN_IF_ERROR(CheckDepth(in_, *node));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseAnd() {
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
    while (in_.TakeName("and")) {
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
      ASSIGN_OR_RETURN(left,
                       MakeBinary("and", std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<ExpressionPtr> ParseNot() {
    if (!in_.IsName("not")) return ParseCompare();
    in_.Take();
    RETURN_IF_ERROR(in_.Descend());
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kUnary, "not");
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
    Adopt(*node, node->children, std::move(operand));
    in_.Ascend();
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseCompare() {
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseLevel(0));
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kComparison);
    while (true) {
      std::string text;
      if (in_.Peek().kind == Kind::kOperator &&
          (in_.IsOperator("==") || in_.IsOperator("!=") ||
           in_.IsOperator("<") || in_.IsOperator("<=") || in_.IsOperator(">") ||
           in_.IsOperator(">="))) {
        text = in_.Take().text;
      } else if (in_.IsName("in")) {
        text = in_.Take().text;
      } else if (in_.IsName("not") && in_.Ahead(1).kind == Kind::kName &&
                 in_.Ahead(1).text == "in") {
        in_.Take();
        in_.Take();
        text = "not in";
      } else {
        return node->operators.empty() ? std::move(left) : std::move(node);
      }
      if (node->operators.empty()) {
        Adopt(*node, node->children, std::move(left));
      }
      node->operators.push_back(text);
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseLevel(0));
      Adopt(*node, node->children, std::move(right));
      RETURN_IF_ERROR(CheckDepth(in_, *node));
    }
  }

  // Returns whether the tuple ends behind its last comma.
  bool EndsTuple() const {
    return in_.Peek().kind == Kind::kOutputEnd ||
           in_.Peek().kind == Kind::kBlockEnd || in_.IsOperator(")") ||
           in_.IsName("recursive");
  }

  // Parses arithmetic operators, the loosest first: + -, then ~, then * / // %,
  // then **, which is left-associative, too, then unary operators.
  absl::StatusOr<ExpressionPtr> ParseLevel(size_t level) {
    static const std::vector<std::set<std::string>> levels = {
        {"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
    if (level == levels.size()) return ParseOperand(in_);
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseLevel(level + 1));
    while (in_.Peek().kind == Kind::kOperator &&
           levels[level].contains(in_.Peek().text)) {
      const std::string text = in_.Take().text;
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseLevel(level + 1));
      ASSIGN_OR_RETURN(left,
                       MakeBinary(text, std::move(left), std::move(right)));
    }
    return left;
  }

  TokenStream& in_;
};

}  // namespace

absl::StatusOr<ExpressionPtr> ParseExpression(TokenStream& in) {
  return ExpressionParser(in).ParseExpression();
}

absl::StatusOr<ExpressionPtr> ParseTuple(TokenStream& in) {
  return ExpressionParser(in).ParseTuple(/*with_conditional=*/true);
}

absl::StatusOr<ExpressionPtr> ParseCondition(TokenStream& in) {
  return ExpressionParser(in).ParseTuple(/*with_conditional=*/false);
}

}  // namespace dapd::jinja
