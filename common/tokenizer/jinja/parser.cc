#include "common/tokenizer/jinja/parser.h"

#include <initializer_list>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/expression_parser.h"
#include "common/tokenizer/jinja/name_check.h"
#include "common/tokenizer/jinja/token_stream.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  absl::StatusOr<Block> Run() {
    ASSIGN_OR_RETURN(Block block, ParseBlock({}));
    if (in_.Peek().kind != Token::Kind::kEnd) {
      return in_.Error(
          absl::StrCat("unexpected tag '", in_.Ahead(1).text, "'"));
    }
    return block;
  }

 private:
  using Kind = Token::Kind;

  // Parses statements up to {% word %} with one of `ends`, and does not take
  // that tag.
  absl::StatusOr<Block> ParseBlock(std::initializer_list<const char*> ends) {
    RETURN_IF_ERROR(in_.Descend());
    Block block;
    while (in_.Peek().kind != Kind::kEnd) {
      if (in_.Peek().kind == Kind::kBlockBegin) {
        for (const char* end : ends) {
          if (in_.Ahead(1).kind == Kind::kName && in_.Ahead(1).text == end) {
            in_.Ascend();
            return block;
          }
        }
      }
      ASSIGN_OR_RETURN(auto statement, ParseStatement());
      block.push_back(std::move(statement));
    }
    if (ends.size() > 0) {
      return in_.Error(absl::StrCat("expected {% ", *ends.begin(), " %}"));
    }
    in_.Ascend();
    return block;
  }

  absl::StatusOr<std::unique_ptr<Statement>> ParseStatement() {
    auto statement = std::make_unique<Statement>();
    statement->line = in_.Peek().line;
    if (in_.Peek().kind == Kind::kText) {
      statement->text = in_.Take().text;
      return statement;
    }
    if (in_.Peek().kind == Kind::kOutputBegin) {
      in_.Take();
      statement->kind = Statement::Kind::kOutput;
      ASSIGN_OR_RETURN(statement->expression, ParseTuple(in_));
      RETURN_IF_ERROR(in_.Expect(Kind::kOutputEnd, "}}"));
      return statement;
    }
    RETURN_IF_ERROR(in_.Expect(Kind::kBlockBegin, "{%"));
    ASSIGN_OR_RETURN(const std::string word, in_.ExpectName());
    if (word == "set") {
      RETURN_IF_ERROR(ParseSet(*statement));
    } else if (word == "if") {
      RETURN_IF_ERROR(ParseIf(*statement));
    } else if (word == "for") {
      RETURN_IF_ERROR(ParseFor(*statement));
    } else if (word == "macro") {
      RETURN_IF_ERROR(ParseMacro(*statement));
    } else if (word == "call") {
      RETURN_IF_ERROR(ParseCall(*statement));
    } else if (word == "filter") {
      statement->kind = Statement::Kind::kFilterBody;
      ASSIGN_OR_RETURN(statement->expression, ParseFilters(in_, BodyName()));
      RETURN_IF_ERROR(ParseBody("endfilter", *statement));
    } else if (word == "generation") {
      // Templates for training put this tag around the assistant's text.
      // transformers records where that text is and leaves it unchanged.
      statement->kind = Statement::Kind::kScope;
      RETURN_IF_ERROR(ParseBody("endgeneration", *statement));
    } else if (word == "with") {
      RETURN_IF_ERROR(ParseWith(*statement));
    } else if (word == "block") {
      RETURN_IF_ERROR(ParseNamedBlock(*statement));
    } else if (word == "autoescape") {
      statement->kind = Statement::Kind::kAutoescape;
      ASSIGN_OR_RETURN(statement->expression, ParseExpression(in_));
      RETURN_IF_ERROR(ParseBody("endautoescape", *statement));
    } else if (word == "print") {
      RETURN_IF_ERROR(ParsePrint(*statement));
    } else if (word == "include" || word == "import" || word == "from" ||
               word == "extends") {
      statement->kind = Statement::Kind::kRefused;
      statement->text = word;
      while (in_.Peek().kind != Kind::kBlockEnd &&
             in_.Peek().kind != Kind::kEnd) {
        in_.Take();
      }
    } else if (word == "break" || word == "continue") {
      if (loops_ == 0) return in_.Error(absl::StrCat(word, " outside a loop"));
      statement->kind = word == "break" ? Statement::Kind::kBreak
                                        : Statement::Kind::kContinue;
    } else {
      return in_.Error(absl::StrCat("the tag '", word, "' is not supported"));
    }
    RETURN_IF_ERROR(in_.Expect(Kind::kBlockEnd, "%}"));
    return statement;
  }

  // Parses a name, or `namespace.entry` if `with_entries`, or several of them,
  // separated by commas, with or without brackets around them.
  absl::StatusOr<Target> ParseTarget(bool with_entries) {
    Target several;
    bool is_tuple = false;
    do {
      const bool ends = in_.IsName("in") || in_.IsOperator("=") ||
                        in_.IsOperator(")") ||
                        in_.Peek().kind == Kind::kBlockEnd;
      if (ends && !several.parts.empty()) break;
      ASSIGN_OR_RETURN(several.parts.emplace_back(),
                       ParseOneTarget(with_entries));
      is_tuple |= in_.IsOperator(",");
    } while (in_.TakeOperator(","));
    if (!is_tuple) return std::move(several.parts.front());
    return several;
  }

  absl::StatusOr<Target> ParseOneTarget(bool with_entries) {
    if (in_.TakeOperator("(")) {
      RETURN_IF_ERROR(in_.Descend());
      ASSIGN_OR_RETURN(Target inner, ParseTarget(with_entries));
      RETURN_IF_ERROR(in_.ExpectOperator(")"));
      in_.Ascend();
      return inner;
    }
    Target target;
    ASSIGN_OR_RETURN(target.name, in_.ExpectName());
    for (const char* constant :
         {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == constant) {
        return in_.Error(absl::StrCat("'", constant, "' cannot be set"));
      }
    }
    if (with_entries && in_.TakeOperator(".")) {
      ASSIGN_OR_RETURN(target.entry, in_.ExpectName());
    }
    return target;
  }

  absl::Status ParseSet(Statement& statement) {
    statement.kind = Statement::Kind::kSet;
    ASSIGN_OR_RETURN(statement.target, ParseTarget(/*with_entries=*/true));
    if (in_.TakeOperator("=")) {
      ASSIGN_OR_RETURN(statement.expression, ParseTuple(in_));
      return absl::OkStatus();
    }
    statement.kind = Statement::Kind::kSetBody;
    statement.expression = BodyName();
    if (in_.TakeOperator("|")) {
      ASSIGN_OR_RETURN(statement.expression,
                       ParseFilters(in_, std::move(statement.expression)));
    } else if (in_.Peek().kind != Kind::kBlockEnd) {
      return in_.Error("'set' needs a '=' or the end of the tag");
    }
    return ParseBody("endset", statement);
  }

  absl::Status ParseWith(Statement& statement) {
    statement.kind = Statement::Kind::kWith;
    while (in_.Peek().kind != Kind::kBlockEnd) {
      if (!statement.assignments.empty()) {
        RETURN_IF_ERROR(in_.ExpectOperator(","));
      }
      ASSIGN_OR_RETURN(Target target, ParseOneTarget(/*with_entries=*/false));
      RETURN_IF_ERROR(in_.ExpectOperator("="));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression(in_));
      statement.assignments.emplace_back(std::move(target), std::move(value));
    }
    const int loops = loops_;
    RETURN_IF_ERROR(in_.Expect(Kind::kBlockEnd, "%}"));
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endwith"}));
    loops_ = loops;
    in_.Take();
    in_.Take();
    return absl::OkStatus();
  }

  absl::Status ParseNamedBlock(Statement& statement) {
    statement.kind = Statement::Kind::kBlock;
    ASSIGN_OR_RETURN(statement.text, in_.ExpectName());
    if (!blocks_.insert(statement.text).second) {
      return in_.Error(
          absl::StrCat("there are two blocks '", statement.text, "'"));
    }
    // A scoped block is a scope like any other.
    if (in_.TakeName("scoped")) statement.kind = Statement::Kind::kScope;
    in_.TakeName("required");
    RETURN_IF_ERROR(ParseBody("endblock", statement));
    in_.TakeName(statement.text.c_str());
    return absl::OkStatus();
  }

  // Several expressions are written one behind the other.
  absl::Status ParsePrint(Statement& statement) {
    statement.kind = Statement::Kind::kOutput;
    statement.expression = MakeNode(in_, Expression::Kind::kLiteral);
    statement.expression->value = Value(std::string());
    while (in_.Peek().kind != Kind::kBlockEnd) {
      if (statement.expression->kind != Expression::Kind::kLiteral) {
        RETURN_IF_ERROR(in_.ExpectOperator(","));
      }
      ExpressionPtr both = MakeNode(in_, Expression::Kind::kBinary, "~");
      ASSIGN_OR_RETURN(ExpressionPtr next, ParseExpression(in_));
      Adopt(*both, both->children, std::move(statement.expression));
      Adopt(*both, both->children, std::move(next));
      RETURN_IF_ERROR(CheckDepth(in_, *both));
      statement.expression = std::move(both);
    }
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Statement& statement) {
    statement.kind = Statement::Kind::kMacro;
    ASSIGN_OR_RETURN(statement.text, in_.ExpectName());
    RETURN_IF_ERROR(in_.ExpectOperator("("));
    const size_t begin = in_.position();
    RETURN_IF_ERROR(ParseParameters(statement));
    RETURN_IF_ERROR(ParseBody("endmacro", statement));
    // As in jinja2, a macro takes more arguments if it uses these names.
    statement.takes_arguments = in_.HasName(begin, "varargs");
    statement.takes_keywords = in_.HasName(begin, "kwargs");
    return absl::OkStatus();
  }

  absl::Status ParseCall(Statement& statement) {
    statement.kind = Statement::Kind::kCall;
    statement.text = kCaller;
    if (in_.TakeOperator("(")) RETURN_IF_ERROR(ParseParameters(statement));
    ASSIGN_OR_RETURN(statement.expression, ParseExpression(in_));
    Expression& call = *statement.expression;
    if (call.kind != Expression::Kind::kCall) {
      return in_.Error("'call' needs the call of a macro");
    }
    call.keywords.emplace_back(kCaller, BodyName());
    return ParseBody("endcall", statement);
  }

  ExpressionPtr BodyName() const {
    return MakeNode(in_, Expression::Kind::kName, kBodyName);
  }

  // Parses names and ")" behind "(".
  absl::Status ParseParameters(Statement& statement) {
    std::set<std::string> taken;
    while (!in_.TakeOperator(")")) {
      ASSIGN_OR_RETURN(std::string name, in_.ExpectName());
      if (!taken.insert(name).second) {
        return in_.Error(absl::StrCat("'", name, "' is a parameter twice"));
      }
      statement.names.push_back(std::move(name));
      statement.defaults.emplace_back();
      if (in_.TakeOperator("=")) {
        ASSIGN_OR_RETURN(statement.defaults.back(), ParseExpression(in_));
      } else if (statement.defaults.size() > 1 &&
                 statement.defaults.end()[-2] != nullptr) {
        return in_.Error(
            "a parameter without a default follows a parameter with a default");
      }
      if (!in_.IsOperator(")")) RETURN_IF_ERROR(in_.ExpectOperator(","));
    }
    return absl::OkStatus();
  }

  // Parses from the end of the tag to the name in {% end %}; the end of that
  // tag remains. The body cannot leave loops around it.
  absl::Status ParseBody(const char* end, Statement& statement) {
    RETURN_IF_ERROR(in_.Expect(Kind::kBlockEnd, "%}"));
    const int loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(statement.body, ParseBlock({end}));
    loops_ = loops;
    in_.Take();
    in_.Take();
    return absl::OkStatus();
  }

  absl::Status ParseIf(Statement& statement) {
    statement.kind = Statement::Kind::kIf;
    while (true) {
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseCondition(in_));
      RETURN_IF_ERROR(in_.Expect(Kind::kBlockEnd, "%}"));
      ASSIGN_OR_RETURN(Block block, ParseBlock({"endif", "elif", "else"}));
      statement.branches.emplace_back(std::move(condition), std::move(block));
      in_.Take();  // {%
      const std::string word = in_.Take().text;
      if (word == "endif") return absl::OkStatus();
      if (word == "elif") continue;
      RETURN_IF_ERROR(in_.Expect(Kind::kBlockEnd, "%}"));
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endif"}));
      in_.Take();
      in_.Take();
      return absl::OkStatus();
    }
  }

  absl::Status ParseFor(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    ASSIGN_OR_RETURN(statement.target, ParseTarget(/*with_entries=*/false));
    if (!in_.TakeName("in")) return in_.Error("expected 'in'");
    ASSIGN_OR_RETURN(statement.expression, ParseCondition(in_));
    if (in_.TakeName("if")) {
      ASSIGN_OR_RETURN(statement.filter, ParseExpression(in_));
    }
    statement.is_recursive = in_.TakeName("recursive");
    RETURN_IF_ERROR(in_.Expect(Kind::kBlockEnd, "%}"));
    ++loops_;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endfor", "else"}));
    --loops_;
    in_.Take();
    if (in_.Take().text == "else") {
      RETURN_IF_ERROR(in_.Expect(Kind::kBlockEnd, "%}"));
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endfor"}));
      in_.Take();
      in_.Take();
    }
    return absl::OkStatus();
  }

  TokenStream in_;
  int loops_ = 0;
  std::set<std::string> blocks_;
};

}  // namespace

absl::StatusOr<Block> Parse(const std::string& source) {
  RETURN_IF_ERROR(DecodeUtf8(source).status());
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  ASSIGN_OR_RETURN(Block block, Parser(std::move(tokens)).Run());
  RETURN_IF_ERROR(CheckNames(block));
  return block;
}

}  // namespace dapd::jinja
