#include "common/tokenizer/jinja/expression_parser.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/generators.h"

namespace dapd::jinja {
namespace {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in) {}

  absl::StatusOr<ExpressionPtr> ParseExpression() {
    RETURN_IF_ERROR(in_.Descend());
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
    if (in_.TakeName("if")) {
      ExpressionPtr node = Make(Expression::Kind::kConditional);
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
      ExpressionPtr otherwise;
      if (in_.TakeName("else")) {
        ASSIGN_OR_RETURN(otherwise, ParseExpression());
      }
      Adopt(*node, node->children, std::move(condition));
      Adopt(*node, node->children, std::move(value));
      Adopt(*node, node->children, std::move(otherwise));
      value = std::move(node);
    }
    in_.Ascend();
    return value;
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

  ExpressionPtr Make(Expression::Kind kind, std::string text = "") const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = in_.Peek().line;
    node->text = std::move(text);
    return node;
  }

  // Makes `child` (which may be null) a part of `node`.
  static void Adopt(Expression& node,
                    std::vector<ExpressionPtr>& parts,
                    ExpressionPtr child) {
    if (child != nullptr) node.depth = std::max(node.depth, child->depth + 1);
    parts.push_back(std::move(child));
  }

  // A chain such as a + b + c grows deep without the parser recursing.
  absl::Status CheckDepth(const Expression& node) const {
    return node.depth > kMaxDepth ? in_.TooDeep() : absl::OkStatus();
  }

  absl::StatusOr<ExpressionPtr> MakeBinary(std::string text,
                                           ExpressionPtr left,
                                           ExpressionPtr right) const {
    ExpressionPtr node = Make(Expression::Kind::kBinary, std::move(text));
    Adopt(*node, node->children, std::move(left));
    Adopt(*node, node->children, std::move(right));
    RETURN_IF_ERROR(CheckDepth(*node));
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
    ExpressionPtr node = Make(Expression::Kind::kUnary, "not");
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
    Adopt(*node, node->children, std::move(operand));
    in_.Ascend();
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseCompare() {
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseLevel(0));
    bool chained = false;
    while (true) {
      std::string text;
      if (in_.Peek().kind == Kind::kOperator &&
          (in_.IsOperator("==") || in_.IsOperator("!=") ||
           in_.IsOperator("<") || in_.IsOperator("<=") || in_.IsOperator(">") ||
           in_.IsOperator(">="))) {
        text = in_.Take().text;
      } else if (in_.IsName("in")) {
        text = in_.Take().text;
      } else if (in_.IsName("not") && in_.Ahead(1).text == "in") {
        in_.Take();
        in_.Take();
        text = "not in";
      } else {
        return left;
      }
      if (chained) return in_.Error("chained comparisons are not supported");
      chained = true;
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseLevel(0));
      ASSIGN_OR_RETURN(left,
                       MakeBinary(text, std::move(left), std::move(right)));
    }
  }

  // Arithmetic, loosest first: + -, then ~, then * / // %, then unary.
  absl::StatusOr<ExpressionPtr> ParseLevel(size_t level) {
    static const std::vector<std::set<std::string>> levels = {
        {"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
    if (level == levels.size()) return ParseUnary(/*with_filter=*/true);
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseLevel(level + 1));
    while (in_.Peek().kind == Kind::kOperator &&
           levels[level].contains(in_.Peek().text)) {
      const std::string text = in_.Take().text;
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseLevel(level + 1));
      ASSIGN_OR_RETURN(left,
                       MakeBinary(text, std::move(left), std::move(right)));
    }
    if (in_.IsOperator("**")) return in_.Error("'**' is not supported");
    return left;
  }

  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filter) {
    ExpressionPtr node;
    if (in_.IsOperator("-") || in_.IsOperator("+")) {
      RETURN_IF_ERROR(in_.Descend());
      node = Make(Expression::Kind::kUnary, in_.Take().text);
      ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
      Adopt(*node, node->children, std::move(operand));
      in_.Ascend();
    } else {
      ASSIGN_OR_RETURN(node, ParsePrimary());
    }
    ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
    if (!with_filter) return node;
    while (true) {
      RETURN_IF_ERROR(CheckDepth(*node));
      if (in_.TakeOperator("|")) {
        ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
      } else if (in_.TakeName("is")) {
        ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
      } else {
        return node;
      }
    }
  }

  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr operand) {
    ASSIGN_OR_RETURN(const std::string name, in_.ExpectName());
    if (!IsKnownFilter(name)) {
      return in_.Error(
          absl::StrCat("the filter '", name, "' is not supported"));
    }
    ExpressionPtr node = Make(Expression::Kind::kFilter, name);
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
    ExpressionPtr node = Make(Expression::Kind::kTest, name);
    Adopt(*node, node->children, std::move(operand));
    if (in_.TakeOperator("(")) RETURN_IF_ERROR(ParseArguments(*node));
    if (!negated) return node;
    ExpressionPtr inverse = Make(Expression::Kind::kUnary, "not");
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
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        call.depth = std::max(call.depth, value->depth + 1);
        call.keywords.emplace_back(keyword, std::move(value));
      } else {
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        Adopt(call, call.arguments, std::move(value));
      }
      if (!in_.IsOperator(")")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr node) {
    while (true) {
      RETURN_IF_ERROR(CheckDepth(*node));
      if (in_.TakeOperator(".")) {
        ASSIGN_OR_RETURN(const std::string name, in_.ExpectName());
        const bool is_call = in_.TakeOperator("(");
        if (is_call && !IsKnownMethod(name)) {
          return in_.Error(
              absl::StrCat("the method '", name, "' is not supported"));
        }
        ExpressionPtr access = Make(
            is_call ? Expression::Kind::kMethod : Expression::Kind::kAttribute,
            name);
        Adopt(*access, access->children, std::move(node));
        if (is_call) RETURN_IF_ERROR(ParseArguments(*access));
        node = std::move(access);
      } else if (in_.TakeOperator("[")) {
        ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
      } else if (in_.IsOperator("(")) {
        if (node->kind != Expression::Kind::kName ||
            !IsKnownFunction(node->text)) {
          return in_.Error(
              absl::StrCat("the function '", node->text, "' is not supported"));
        }
        in_.Take();
        ExpressionPtr call = Make(Expression::Kind::kCall, node->text);
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
        ASSIGN_OR_RETURN(parts[count], ParseExpression());
        if (!in_.IsOperator(":") && !in_.IsOperator("]")) {
          return in_.Error("this subscript is not supported");
        }
      }
    }
    in_.Take();
    ExpressionPtr node =
        Make(is_slice ? Expression::Kind::kSlice : Expression::Kind::kIndex);
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
    ExpressionPtr node = Make(Expression::Kind::kLiteral);
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
    ASSIGN_OR_RETURN(ExpressionPtr inner, ParseExpression());
    if (!in_.IsOperator(",")) {
      RETURN_IF_ERROR(in_.ExpectOperator(")"));
      return inner;
    }
    // A tuple, which nothing here tells from a list.
    ExpressionPtr node = Make(Expression::Kind::kList);
    Adopt(*node, node->children, std::move(inner));
    while (in_.TakeOperator(",") && !in_.IsOperator(")")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
      Adopt(*node, node->children, std::move(item));
    }
    RETURN_IF_ERROR(in_.ExpectOperator(")"));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseList() {
    ExpressionPtr node = Make(Expression::Kind::kList);
    while (!in_.TakeOperator("]")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
      Adopt(*node, node->children, std::move(item));
      if (!in_.IsOperator("]")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseDict() {
    ExpressionPtr node = Make(Expression::Kind::kDict);
    while (!in_.TakeOperator("}")) {
      ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
      RETURN_IF_ERROR(in_.ExpectOperator(":"));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      Adopt(*node, node->children, std::move(key));
      Adopt(*node, node->children, std::move(value));
      if (!in_.IsOperator("}")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return node;
  }

  TokenStream& in_;
};

}  // namespace

absl::StatusOr<ExpressionPtr> ParseExpression(TokenStream& in) {
  ASSIGN_OR_RETURN(ExpressionPtr value, ExpressionParser(in).ParseExpression());
  RETURN_IF_ERROR(CheckGenerators(*value, /*iterated=*/false));
  return value;
}

absl::StatusOr<ExpressionPtr> ParseIterated(TokenStream& in) {
  ASSIGN_OR_RETURN(ExpressionPtr value, ExpressionParser(in).ParseOr());
  RETURN_IF_ERROR(CheckGenerators(*value, /*iterated=*/true));
  return value;
}

}  // namespace dapd::jinja
