#include "common/tokenizer/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/lexer.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd::jinja {
namespace {

// What follows the tree recurses: evaluation and destruction.
constexpr int kMaxDepth = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<Block> Run() {
    ASSIGN_OR_RETURN(Block block, ParseBlock({}));
    if (Peek().kind != Token::Kind::kEnd) {
      return Error(absl::StrCat("unexpected tag '", Ahead(1).text, "'"));
    }
    return block;
  }

 private:
  using Kind = Token::Kind;

  const Token& Peek() const { return tokens_[position_]; }
  const Token& Ahead(size_t n) const {
    return tokens_[std::min(position_ + n, tokens_.size() - 1)];
  }
  Token Take() {
    return tokens_[position_ + 1 < tokens_.size() ? position_++ : position_];
  }
  bool IsOperator(const char* text) const {
    return Peek().kind == Kind::kOperator && Peek().text == text;
  }
  bool IsName(const char* text) const {
    return Peek().kind == Kind::kName && Peek().text == text;
  }
  bool TakeOperator(const char* text) {
    if (!IsOperator(text)) return false;
    Take();
    return true;
  }
  bool TakeName(const char* text) {
    if (!IsName(text)) return false;
    Take();
    return true;
  }
  absl::Status Error(const std::string& problem) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", Peek().line, ": ", problem));
  }
  absl::Status Expect(Kind kind, const char* what) {
    if (Peek().kind != kind) {
      return Error(
          absl::StrCat("expected ", what, ", got '", Peek().text, "'"));
    }
    Take();
    return absl::OkStatus();
  }
  absl::Status ExpectOperator(const char* text) {
    if (!TakeOperator(text)) {
      return Error(
          absl::StrCat("expected '", text, "', got '", Peek().text, "'"));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ExpectName() {
    if (Peek().kind != Kind::kName) {
      return Error(absl::StrCat("expected a name, got '", Peek().text, "'"));
    }
    return Take().text;
  }

  // Statements up to {% word %} for one of `ends`, which is not taken.
  absl::StatusOr<Block> ParseBlock(std::initializer_list<const char*> ends) {
    if (++depth_ > kMaxDepth) return Error("nested too deeply");
    Block block;
    while (Peek().kind != Kind::kEnd) {
      if (Peek().kind == Kind::kBlockBegin) {
        for (const char* end : ends) {
          if (Ahead(1).kind == Kind::kName && Ahead(1).text == end) {
            --depth_;
            return block;
          }
        }
      }
      ASSIGN_OR_RETURN(auto statement, ParseStatement());
      block.push_back(std::move(statement));
    }
    if (ends.size() > 0) {
      return Error(absl::StrCat("expected {% ", *ends.begin(), " %}"));
    }
    --depth_;
    return block;
  }

  absl::StatusOr<std::unique_ptr<Statement>> ParseStatement() {
    auto statement = std::make_unique<Statement>();
    statement->line = Peek().line;
    if (Peek().kind == Kind::kText) {
      statement->text = Take().text;
      return statement;
    }
    if (Peek().kind == Kind::kOutputBegin) {
      Take();
      statement->kind = Statement::Kind::kOutput;
      ASSIGN_OR_RETURN(statement->expression, ParseExpression());
      RETURN_IF_ERROR(Expect(Kind::kOutputEnd, "}}"));
      return statement;
    }
    RETURN_IF_ERROR(Expect(Kind::kBlockBegin, "{%"));
    ASSIGN_OR_RETURN(const std::string word, ExpectName());
    if (word == "set") {
      RETURN_IF_ERROR(ParseSet(*statement));
    } else if (word == "if") {
      RETURN_IF_ERROR(ParseIf(*statement));
    } else if (word == "for") {
      RETURN_IF_ERROR(ParseFor(*statement));
    } else if (word == "break" || word == "continue") {
      if (loops_ == 0) return Error(absl::StrCat(word, " outside a loop"));
      statement->kind = word == "break" ? Statement::Kind::kBreak
                                        : Statement::Kind::kContinue;
    } else {
      return Error(absl::StrCat("the tag '", word, "' is not supported"));
    }
    RETURN_IF_ERROR(Expect(Kind::kBlockEnd, "%}"));
    return statement;
  }

  absl::Status ParseSet(Statement& statement) {
    statement.kind = Statement::Kind::kSet;
    ASSIGN_OR_RETURN(std::string name, ExpectName());
    statement.names.push_back(std::move(name));
    if (TakeOperator(".")) {
      ASSIGN_OR_RETURN(std::string field, ExpectName());
      statement.names.push_back(std::move(field));
    }
    if (!IsOperator("=")) {
      return Error("this form of 'set' is not supported");
    }
    Take();
    ASSIGN_OR_RETURN(statement.expression, ParseExpression());
    return absl::OkStatus();
  }

  absl::Status ParseIf(Statement& statement) {
    statement.kind = Statement::Kind::kIf;
    while (true) {
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseExpression());
      RETURN_IF_ERROR(Expect(Kind::kBlockEnd, "%}"));
      ASSIGN_OR_RETURN(Block block, ParseBlock({"endif", "elif", "else"}));
      statement.branches.emplace_back(std::move(condition), std::move(block));
      Take();  // {%
      const std::string word = Take().text;
      if (word == "endif") return absl::OkStatus();
      if (word == "elif") continue;
      RETURN_IF_ERROR(Expect(Kind::kBlockEnd, "%}"));
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endif"}));
      Take();
      Take();
      return absl::OkStatus();
    }
  }

  absl::Status ParseFor(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    do {
      ASSIGN_OR_RETURN(std::string name, ExpectName());
      statement.names.push_back(std::move(name));
    } while (TakeOperator(","));
    if (!TakeName("in")) return Error("expected 'in'");
    ASSIGN_OR_RETURN(statement.expression, ParseOr());
    if (TakeName("if")) {
      ASSIGN_OR_RETURN(statement.filter, ParseExpression());
    }
    if (IsName("recursive")) return Error("'recursive' is not supported");
    RETURN_IF_ERROR(Expect(Kind::kBlockEnd, "%}"));
    ++loops_;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endfor", "else"}));
    --loops_;
    Take();
    if (Take().text == "else") {
      RETURN_IF_ERROR(Expect(Kind::kBlockEnd, "%}"));
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endfor"}));
      Take();
      Take();
    }
    return absl::OkStatus();
  }

  ExpressionPtr Make(Expression::Kind kind, std::string text = "") const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = Peek().line;
    node->text = std::move(text);
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseExpression() {
    if (++depth_ > kMaxDepth) return Error("nested too deeply");
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
    if (TakeName("if")) {
      ExpressionPtr node = Make(Expression::Kind::kConditional);
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
      ExpressionPtr otherwise;
      if (TakeName("else")) {
        ASSIGN_OR_RETURN(otherwise, ParseExpression());
      }
      Adopt(*node, node->children, std::move(condition));
      Adopt(*node, node->children, std::move(value));
      Adopt(*node, node->children, std::move(otherwise));
      value = std::move(node);
    }
    --depth_;
    return value;
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
    return node.depth > kMaxDepth ? Error("nested too deeply")
                                  : absl::OkStatus();
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

  absl::StatusOr<ExpressionPtr> ParseOr() {
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
    while (TakeName("or")) {
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
      ASSIGN_OR_RETURN(left,
                       MakeBinary("or", std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<ExpressionPtr> ParseAnd() {
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
    while (TakeName("and")) {
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
      ASSIGN_OR_RETURN(left,
                       MakeBinary("and", std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<ExpressionPtr> ParseNot() {
    if (!IsName("not")) return ParseCompare();
    Take();
    if (++depth_ > kMaxDepth) return Error("nested too deeply");
    ExpressionPtr node = Make(Expression::Kind::kUnary, "not");
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
    Adopt(*node, node->children, std::move(operand));
    --depth_;
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseCompare() {
    ASSIGN_OR_RETURN(ExpressionPtr left, ParseLevel(0));
    bool chained = false;
    while (true) {
      std::string text;
      if (Peek().kind == Kind::kOperator &&
          (IsOperator("==") || IsOperator("!=") || IsOperator("<") ||
           IsOperator("<=") || IsOperator(">") || IsOperator(">="))) {
        text = Take().text;
      } else if (IsName("in")) {
        text = Take().text;
      } else if (IsName("not") && Ahead(1).text == "in") {
        Take();
        Take();
        text = "not in";
      } else {
        return left;
      }
      if (chained) return Error("chained comparisons are not supported");
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
    while (Peek().kind == Kind::kOperator &&
           levels[level].contains(Peek().text)) {
      const std::string text = Take().text;
      ASSIGN_OR_RETURN(ExpressionPtr right, ParseLevel(level + 1));
      ASSIGN_OR_RETURN(left,
                       MakeBinary(text, std::move(left), std::move(right)));
    }
    if (IsOperator("**")) return Error("'**' is not supported");
    return left;
  }

  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filter) {
    ExpressionPtr node;
    if (IsOperator("-") || IsOperator("+")) {
      if (++depth_ > kMaxDepth) return Error("nested too deeply");
      node = Make(Expression::Kind::kUnary, Take().text);
      ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
      Adopt(*node, node->children, std::move(operand));
      --depth_;
    } else {
      ASSIGN_OR_RETURN(node, ParsePrimary());
    }
    ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
    if (!with_filter) return node;
    while (true) {
      RETURN_IF_ERROR(CheckDepth(*node));
      if (TakeOperator("|")) {
        ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
      } else if (TakeName("is")) {
        ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
      } else {
        return node;
      }
    }
  }

  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr operand) {
    ASSIGN_OR_RETURN(const std::string name, ExpectName());
    if (!IsKnownFilter(name)) {
      return Error(absl::StrCat("the filter '", name, "' is not supported"));
    }
    ExpressionPtr node = Make(Expression::Kind::kFilter, name);
    Adopt(*node, node->children, std::move(operand));
    if (TakeOperator("(")) RETURN_IF_ERROR(ParseArguments(*node));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr operand) {
    const bool negated = TakeName("not");
    ASSIGN_OR_RETURN(const std::string name, ExpectName());
    if (!IsKnownTest(name)) {
      return Error(absl::StrCat("the test '", name, "' is not supported"));
    }
    ExpressionPtr node = Make(Expression::Kind::kTest, name);
    Adopt(*node, node->children, std::move(operand));
    if (TakeOperator("(")) RETURN_IF_ERROR(ParseArguments(*node));
    if (!negated) return node;
    ExpressionPtr inverse = Make(Expression::Kind::kUnary, "not");
    Adopt(*inverse, inverse->children, std::move(node));
    return inverse;
  }

  // After "(": arguments and ")".
  absl::Status ParseArguments(Expression& call) {
    while (!TakeOperator(")")) {
      if (Peek().kind == Kind::kName && Ahead(1).kind == Kind::kOperator &&
          Ahead(1).text == "=") {
        const std::string keyword = Take().text;
        Take();
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        call.depth = std::max(call.depth, value->depth + 1);
        call.keywords.emplace_back(keyword, std::move(value));
      } else {
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        Adopt(call, call.arguments, std::move(value));
      }
      if (!IsOperator(")")) RETURN_IF_ERROR(ExpectOperator(","));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr node) {
    while (true) {
      RETURN_IF_ERROR(CheckDepth(*node));
      if (TakeOperator(".")) {
        ASSIGN_OR_RETURN(const std::string name, ExpectName());
        const bool is_call = TakeOperator("(");
        if (is_call && !IsKnownMethod(name)) {
          return Error(
              absl::StrCat("the method '", name, "' is not supported"));
        }
        ExpressionPtr access = Make(
            is_call ? Expression::Kind::kMethod : Expression::Kind::kAttribute,
            name);
        Adopt(*access, access->children, std::move(node));
        if (is_call) RETURN_IF_ERROR(ParseArguments(*access));
        node = std::move(access);
      } else if (TakeOperator("[")) {
        ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
      } else if (IsOperator("(")) {
        if (node->kind != Expression::Kind::kName ||
            !IsKnownFunction(node->text)) {
          return Error(
              absl::StrCat("the function '", node->text, "' is not supported"));
        }
        Take();
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
    while (!IsOperator("]")) {
      if (TakeOperator(":")) {
        is_slice = true;
        if (++count > 2) return Error("a slice has three parts");
      } else {
        ASSIGN_OR_RETURN(parts[count], ParseExpression());
        if (!IsOperator(":") && !IsOperator("]")) {
          return Error("this subscript is not supported");
        }
      }
    }
    Take();
    ExpressionPtr node =
        Make(is_slice ? Expression::Kind::kSlice : Expression::Kind::kIndex);
    Adopt(*node, node->children, std::move(object));
    if (!is_slice && parts[0] == nullptr) return Error("an empty subscript");
    for (int i = 0; i < (is_slice ? 3 : 1); ++i) {
      Adopt(*node, node->children, std::move(parts[i]));
    }
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParsePrimary() {
    const Token token = Take();
    ExpressionPtr node = Make(Expression::Kind::kLiteral);
    switch (token.kind) {
      case Kind::kString: {
        std::string text = token.text;
        // Adjacent strings are one.
        while (Peek().kind == Kind::kString) text += Take().text;
        node->value = Value(text);
        return node;
      }
      case Kind::kInteger: {
        int64_t number = 0;
        if (!absl::SimpleAtoi(token.text, &number)) return Error("bad number");
        node->value = Value(number);
        return node;
      }
      case Kind::kFloat: {
        double number = 0;
        if (!absl::SimpleAtod(token.text, &number)) return Error("bad number");
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
    return Error(absl::StrCat("unexpected '", token.text, "'"));
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
    if (!IsOperator(",")) {
      RETURN_IF_ERROR(ExpectOperator(")"));
      return inner;
    }
    // A tuple, which nothing here tells from a list.
    ExpressionPtr node = Make(Expression::Kind::kList);
    Adopt(*node, node->children, std::move(inner));
    while (TakeOperator(",") && !IsOperator(")")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
      Adopt(*node, node->children, std::move(item));
    }
    RETURN_IF_ERROR(ExpectOperator(")"));
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseList() {
    ExpressionPtr node = Make(Expression::Kind::kList);
    while (!TakeOperator("]")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
      Adopt(*node, node->children, std::move(item));
      if (!IsOperator("]")) RETURN_IF_ERROR(ExpectOperator(","));
    }
    return node;
  }

  absl::StatusOr<ExpressionPtr> ParseDict() {
    ExpressionPtr node = Make(Expression::Kind::kDict);
    while (!TakeOperator("}")) {
      ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
      RETURN_IF_ERROR(ExpectOperator(":"));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      Adopt(*node, node->children, std::move(key));
      Adopt(*node, node->children, std::move(value));
      if (!IsOperator("}")) RETURN_IF_ERROR(ExpectOperator(","));
    }
    return node;
  }

  const std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<Block> Parse(const std::string& source) {
  RETURN_IF_ERROR(DecodeUtf8(source).status());
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace dapd::jinja
