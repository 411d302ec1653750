#include "common/tokenizer/jinja/expression_parser.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

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
      } else if (in_.IsOperator("(")) {
        ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
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

  // Parses "name" or "name.name".
  absl::StatusOr<std::string> ParseDottedName() {
    ASSIGN_OR_RETURN(std::string name, in_.ExpectName());
    while (in_.TakeOperator(".")) {
      ASSIGN_OR_RETURN(const std::string part, in_.ExpectName());
      absl::StrAppend(&name, ".", part);
    }
    return name;
  }

  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr operand) {
    ASSIGN_OR_RETURN(const std::string name, ParseDottedName());
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kFilter, name);
    Adopt(*node, node->children, std::move(operand));
    if (in_.TakeOperator("(")) RETURN_IF_ERROR(ParseArguments(*node));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr operand) {
    const bool negated = in_.TakeName("not");
    ASSIGN_OR_RETURN(const std::string name, ParseDottedName());
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kTest, name);
    Adopt(*node, node->children, std::move(operand));
    if (in_.TakeOperator("(")) {
      RETURN_IF_ERROR(ParseArguments(*node));
    } else if (StartsArgument()) {
      if (in_.IsName("is")) return in_.Error("'is' behind a test");
      ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
      ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
      Adopt(*node, node->arguments, std::move(argument));
    }
    if (!negated) return node;
    ExpressionPtr inverse = MakeNode(in_, Expression::Kind::kUnary, "not");
    Adopt(*inverse, inverse->children, std::move(node));
    return inverse;
  }

  // Returns whether the argument of a test begins here without brackets.
  bool StartsArgument() const {
    switch (in_.Peek().kind) {
      case Kind::kName:
        return !in_.IsName("else") && !in_.IsName("or") && !in_.IsName("and");
      case Kind::kString:
      case Kind::kInteger:
      case Kind::kFloat:
        return true;
      case Kind::kOperator:
        return in_.IsOperator("[") || in_.IsOperator("{");
      default:
        return false;
    }
  }

  // Parses arguments and ")" behind "(".
  absl::Status ParseArguments(Expression& call) {
    while (!in_.TakeOperator(")")) {
      if (in_.TakeOperator("*")) {
        if (call.more_arguments != nullptr || call.more_keywords != nullptr) {
          return in_.Error("'*' comes once, and before '**'");
        }
        ASSIGN_OR_RETURN(call.more_arguments, ParseExpression(in_));
        call.depth = std::max(call.depth, call.more_arguments->depth + 1);
      } else if (in_.TakeOperator("**")) {
        if (call.more_keywords != nullptr) return in_.Error("'**' comes once");
        ASSIGN_OR_RETURN(call.more_keywords, ParseExpression(in_));
        call.depth = std::max(call.depth, call.more_keywords->depth + 1);
      } else if (in_.Peek().kind == Kind::kName &&
                 in_.Ahead(1).kind == Kind::kOperator &&
                 in_.Ahead(1).text == "=" && call.more_keywords == nullptr) {
        const std::string keyword = in_.Take().text;
        in_.Take();
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression(in_));
        call.depth = std::max(call.depth, value->depth + 1);
        call.keywords.emplace_back(keyword, std::move(value));
      } else {
        if (!call.keywords.empty() || call.more_arguments != nullptr ||
            call.more_keywords != nullptr) {
          return in_.Error(
              "an argument without a name follows an argument with a name");
        }
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression(in_));
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
        ExpressionPtr access =
            MakeNode(in_, Expression::Kind::kAttribute, name);
        Adopt(*access, access->children, std::move(node));
        node = std::move(access);
      } else if (in_.TakeOperator("[")) {
        ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
      } else if (in_.IsOperator("(")) {
        ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
      } else {
        return node;
      }
    }
  }

  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr callee) {
    ExpressionPtr call = MakeNode(in_, Expression::Kind::kCall);
    in_.Take();
    Adopt(*call, call->children, std::move(callee));
    RETURN_IF_ERROR(ParseArguments(*call));
    return call;
  }

  // Parses a key, a slice or a tuple of keys behind "[".
  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr object) {
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kIndex);
    Adopt(*node, node->children, std::move(object));
    ExpressionPtr keys = MakeNode(in_, Expression::Kind::kTuple);
    while (!in_.IsOperator("]")) {
      ExpressionPtr first;
      if (!in_.IsOperator(":")) {
        ASSIGN_OR_RETURN(first, ParseExpression(in_));
      }
      if (in_.IsOperator(":")) {
        if (!keys->children.empty()) {
          return in_.Error("a slice beside another key is not supported");
        }
        node->kind = Expression::Kind::kSlice;
        return ParseSlice(std::move(node), std::move(first));
      }
      Adopt(*keys, keys->children, std::move(first));
      if (!in_.IsOperator("]")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    in_.Take();
    const bool is_one = keys->children.size() == 1;
    Adopt(*node,
          node->children,
          is_one ? std::move(keys->children[0]) : std::move(keys));
    return node;
  }

  // The next token is the first ":".
  absl::StatusOr<ExpressionPtr> ParseSlice(ExpressionPtr node,
                                           ExpressionPtr first) {
    Adopt(*node, node->children, std::move(first));
    for (int i = 0; i < 2; ++i) {
      ExpressionPtr part;
      if (in_.TakeOperator(":") && !in_.IsOperator(":") &&
          !in_.IsOperator("]")) {
        ASSIGN_OR_RETURN(part, ParseExpression(in_));
      }
      Adopt(*node, node->children, std::move(part));
    }
    RETURN_IF_ERROR(in_.ExpectOperator("]"));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParsePrimary() {
    const Token token = in_.Take();
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kLiteral);
    switch (token.kind) {
      case Kind::kString: {
        std::string text = token.text;
        // Adjacent strings form one string.
        while (in_.Peek().kind == Kind::kString) text += in_.Take().text;
        node->value = Value(text);
        return node;
      }
      case Kind::kInteger: {
        int64_t number = 0;
        if (!absl::SimpleAtoi(token.text, &number)) {
          return in_.Error("bad number");
        }
        node->value = Value(number);
        return node;
      }
      case Kind::kFloat: {
        double number = 0;
        if (!absl::SimpleAtod(token.text, &number)) {
          return in_.Error("bad number");
        }
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
    RETURN_IF_ERROR(in_.Descend());
    ExpressionPtr inner = MakeNode(in_, Expression::Kind::kTuple);
    if (!in_.IsOperator(")")) {
      ASSIGN_OR_RETURN(inner, ParseTuple(in_));
    }
    RETURN_IF_ERROR(in_.ExpectOperator(")"));
    in_.Ascend();
    return inner;
  }

  absl::StatusOr<ExpressionPtr> ParseList() {
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kList);
    while (!in_.TakeOperator("]")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(in_));
      Adopt(*node, node->children, std::move(item));
      if (!in_.IsOperator("]")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseDict() {
    ExpressionPtr node = MakeNode(in_, Expression::Kind::kDict);
    while (!in_.TakeOperator("}")) {
      ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression(in_));
      RETURN_IF_ERROR(in_.ExpectOperator(":"));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression(in_));
      Adopt(*node, node->children, std::move(key));
      Adopt(*node, node->children, std::move(value));
      if (!in_.IsOperator("}")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return node;
  }

  TokenStream& in_;
};

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
    if (level == levels.size()) {
      return OperandParser(in_).ParseUnary(/*with_filter=*/true);
    }
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

absl::StatusOr<ExpressionPtr> ParseFilters(TokenStream& in,
                                           ExpressionPtr operand) {
  return OperandParser(in).ParseFilters(std::move(operand));
}

}  // namespace dapd::jinja
