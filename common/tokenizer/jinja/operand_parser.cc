#include "common/tokenizer/jinja/operand_parser.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/expression_node.h"
#include "common/tokenizer/jinja/expression_parser.h"
#include "common/tokenizer/jinja/filters.h"

namespace dapd::jinja {
namespace {

class OperandParser {
 public:
  explicit OperandParser(TokenStream& in) : in_(in) {}

  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filter) {
    ExpressionPtr node;
    if (in_.IsOperator("-") || in_.IsOperator("+")) {
      RETURN_IF_ERROR(in_.Descend());
      node = MakeNode(in_, Expression::Kind::kUnary, in_.Take().text);
      ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
      Adopt(*node, node->children, std::move(operand));
      in_.Ascend();
    } else {
      ASSIGN_OR_RETURN(node, ParsePrimary());
    }
    ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
    if (!with_filter) return node;
    while (true) {
      RETURN_IF_ERROR(CheckDepth(in_, *node));
      if (in_.TakeOperator("|")) {
        ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
      } else if (in_.TakeName("is")) {
        ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
      } else {
        return node;
      }
    }
  }

  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr node) {
    do {
      ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
      RETURN_IF_ERROR(CheckDepth(in_, *node));
    } while (in_.TakeOperator("|"));
    return node;
  }

 private:
  using Kind = Token::Kind;

  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr operand) {
    ASSIGN_OR_RETURN(const std::string name, in_.ExpectName());
    if (!IsKnownFilter(name)) {
      return in_.Error(
          absl::StrCat("the filter '", name, "' is not supported"));
    }
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kFilter, name);
    Adopt(*node, node->children, std::move(operand));
    if (in_.TakeOperator("(")) RETURN_IF_ERROR(ParseArguments(*node));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr operand) {
    const bool negated = in_.TakeName("not");
    ASSIGN_OR_RETURN(const std::string name, in_.ExpectName());
    if (!IsKnownTest(name)) {
      return in_.Error(absl::StrCat("the test '", name, "' is not supported"));
    }
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kTest, name);
    Adopt(*node, node->children, std::move(operand));
    if (in_.TakeOperator("(")) RETURN_IF_ERROR(ParseArguments(*node));
    if (!negated) return node;
    ExpressionPtr inverse = MakeNode(in_, Expression::Kind::kUnary, "not");
    Adopt(*inverse, inverse->children, std::move(node));
    return inverse;
  }

  // After "(": arguments and ")".
  absl::Status ParseArguments(Expression& call) {
    while (!in_.TakeOperator(")")) {
      if (in_.Peek().kind == Kind::kName &&
          in_.Ahead(1).kind == Kind::kOperator && in_.Ahead(1).text == "=") {
        const std::string keyword = in_.Take().text;
        in_.Take();
        ASSIGN_OR_RETURN(ExpressionPtr value, ParsePart(in_));
        call.depth = std::max(call.depth, value->depth + 1);
        call.keywords.emplace_back(keyword, std::move(value));
      } else {
        ASSIGN_OR_RETURN(ExpressionPtr value, ParsePart(in_));
        Adopt(call, call.arguments, std::move(value));
      }
      if (!in_.IsOperator(")")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr node) {
    while (true) {
      RETURN_IF_ERROR(CheckDepth(in_, *node));
      if (in_.IsOperator(".") && in_.Ahead(1).kind == Kind::kInteger) {
        in_.Take();
        ExpressionPtr access = MakeNode(in_, Expression::Kind::kIndex);
        ASSIGN_OR_RETURN(ExpressionPtr index, ParsePrimary());
        Adopt(*access, access->children, std::move(node));
        Adopt(*access, access->children, std::move(index));
        node = std::move(access);
      } else if (in_.TakeOperator(".")) {
        ASSIGN_OR_RETURN(const std::string name, in_.ExpectName());
        const bool is_call = in_.TakeOperator("(");
        if (is_call && !IsKnownMethod(name)) {
          return in_.Error(
              absl::StrCat("the method '", name, "' is not supported"));
        }
        ExpressionPtr access = MakeNode(
            in_,
            is_call ? Expression::Kind::kMethod : Expression::Kind::kAttribute,
            name);
        Adopt(*access, access->children, std::move(node));
        if (is_call) RETURN_IF_ERROR(ParseArguments(*access));
        node = std::move(access);
      } else if (in_.TakeOperator("[")) {
        ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
      } else if (in_.IsOperator("(")) {
        if (node->kind != Expression::Kind::kName) {
          return in_.Error("a call of anything but a name is not supported");
        }
        if (!IsKnownFunction(node->text) && !in_.HasMacro(node->text)) {
          return in_.Error(
              absl::StrCat("the function '", node->text, "' is not supported"));
        }
        in_.Take();
        ExpressionPtr call = MakeNode(in_, Expression::Kind::kCall, node->text);
        RETURN_IF_ERROR(ParseArguments(*call));
        node = std::move(call);
      } else {
        return node;
      }
    }
  }

  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr object) {
    ExpressionPtr parts[3];
    int count = 0;
    bool is_slice = false;
    while (!in_.IsOperator("]")) {
      if (in_.TakeOperator(":")) {
        is_slice = true;
        if (++count > 2) return in_.Error("a slice has three parts");
      } else {
        ASSIGN_OR_RETURN(parts[count], ParsePart(in_));
        if (!in_.IsOperator(":") && !in_.IsOperator("]")) {
          return in_.Error("this subscript is not supported");
        }
      }
    }
    in_.Take();
    ExpressionPtr node = MakeNode(
        in_, is_slice ? Expression::Kind::kSlice : Expression::Kind::kIndex);
    Adopt(*node, node->children, std::move(object));
    if (!is_slice && parts[0] == nullptr)
      return in_.Error("an empty subscript");
    for (int i = 0; i < (is_slice ? 3 : 1); ++i) {
      Adopt(*node, node->children, std::move(parts[i]));
    }
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParsePrimary() {
    const Token token = in_.Take();
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kLiteral);
    switch (token.kind) {
      case Kind::kString: {
        std::string text = token.text;
        // Adjacent strings are one.
        while (in_.Peek().kind == Kind::kString) text += in_.Take().text;
        node->value = Value(text);
        return node;
      }
      case Kind::kInteger: {
        int64_t number = 0;
        if (!absl::SimpleAtoi(token.text, &number))
          return in_.Error("bad number");
        node->value = Value(number);
        return node;
      }
      case Kind::kFloat: {
        double number = 0;
        if (!absl::SimpleAtod(token.text, &number))
          return in_.Error("bad number");
        node->value = Value(number);
        return node;
      }
      case Kind::kName:
        return MakeName(std::move(node), token.text);
      case Kind::kOperator:
        if (token.text == "(") return ParseParenthesis();
        if (token.text == "[") return ParseList();
        if (token.text == "{") return ParseDict();
        break;
      default:
        break;
    }
    return in_.Error(absl::StrCat("unexpected '", token.text, "'"));
  }

  static absl::StatusOr<ExpressionPtr> MakeName(ExpressionPtr node,
                                                const std::string& name) {
    if (name == "true" || name == "True") {
      node->value = Value(true);
    } else if (name == "false" || name == "False") {
      node->value = Value(false);
    } else if (name == "none" || name == "None") {
      node->value = Value::MakeNone();
    } else {
      node->kind = Expression::Kind::kName;
      node->text = name;
    }
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseParenthesis() {
    ASSIGN_OR_RETURN(ExpressionPtr inner, ParsePart(in_));
    if (!in_.IsOperator(",")) {
      RETURN_IF_ERROR(in_.ExpectOperator(")"));
      return inner;
    }
    // A tuple, which nothing here tells from a list.
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kList);
    Adopt(*node, node->children, std::move(inner));
    while (in_.TakeOperator(",") && !in_.IsOperator(")")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParsePart(in_));
      Adopt(*node, node->children, std::move(item));
    }
    RETURN_IF_ERROR(in_.ExpectOperator(")"));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseList() {
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kList);
    while (!in_.TakeOperator("]")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParsePart(in_));
      Adopt(*node, node->children, std::move(item));
      if (!in_.IsOperator("]")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseDict() {
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kDict);
    while (!in_.TakeOperator("}")) {
      ASSIGN_OR_RETURN(ExpressionPtr key, ParsePart(in_));
      RETURN_IF_ERROR(in_.ExpectOperator(":"));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParsePart(in_));
      Adopt(*node, node->children, std::move(key));
      Adopt(*node, node->children, std::move(value));
      if (!in_.IsOperator("}")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return node;
  }

  TokenStream& in_;
};

}  // namespace

absl::StatusOr<ExpressionPtr> ParseOperand(TokenStream& in) {
  return OperandParser(in).ParseUnary(/*with_filter=*/true);
}

absl::StatusOr<ExpressionPtr> ParseFilterChain(TokenStream& in,
                                               ExpressionPtr operand) {
  return OperandParser(in).ParseFilters(std::move(operand));
}

}  // namespace dapd::jinja
