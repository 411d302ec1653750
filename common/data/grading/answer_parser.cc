// Parses the tokens of an answer by recursive descent:
//
//   answer    = ["=" | "~="] relation { "," relation }
//   relation  = (union | anything "=") { ("=" | "<" | ...) union }
//   union     = operand { "\cup" operand }
//   operand   = set | interval | tuple | ["-" | sum ["*"]] matrix | ratio
//
// value_parser.h reads a ratio, which is most often a single sum.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/data/grading/answer_expression.h"
#include "common/data/grading/token_reader.h"
#include "common/data/grading/value_parser.h"

namespace dapd {
namespace {

using Kind = LatexToken::Kind;
using Form = AnswerExpression::Kind;

constexpr size_t kMaxParts = 256;

AnswerExpression ValueOf(MathValue value) {
  AnswerExpression expression;
  expression.value = std::move(value);
  return expression;
}

AnswerExpression Compound(Form kind, std::vector<AnswerExpression> parts) {
  AnswerExpression expression;
  expression.kind = kind;
  expression.parts = std::move(parts);
  return expression;
}

// Each function returns nothing if the tokens do not fit. The position in the
// tokens is undefined then, unless the caller goes back to an earlier position.
class AnswerParser {
 public:
  explicit AnswerParser(std::span<const LatexToken> tokens)
      : tokens_(tokens), values_(tokens_) {}

  std::optional<AnswerExpression> Answer() {
    if (!tokens_.Take("=")) tokens_.Take("~=");
    auto answer = List();
    if (!answer.has_value() || !tokens_.at_end()) return std::nullopt;
    return answer;
  }

 private:
  // Reads one or several items with commas between them, as far as they go. An
  // item with a "\pm" counts twice, but only once in `num_written`.
  std::optional<std::vector<AnswerExpression>> Items(
      size_t* num_written = nullptr) {
    const TokenReader::Level level(tokens_);
    if (level.is_too_deep()) return std::nullopt;
    std::vector<AnswerExpression> items;
    do {
      // "2, and 3": two separators count as one.
      while (!items.empty() && tokens_.Take(",")) {
      }
      auto item = WithBothSigns();
      if (num_written != nullptr) ++*num_written;
      if (!item.has_value() || items.size() >= kMaxParts) return std::nullopt;
      for (AnswerExpression& each : *item) items.push_back(std::move(each));
    } while (tokens_.Take(","));
    return items;
  }

  std::optional<AnswerExpression> List() {
    auto items = Items();
    if (!items.has_value()) return std::nullopt;
    if (items->size() == 1) return std::move(items->front());
    return Compound(Form::kList, *std::move(items));
  }

  // Reads a relation; returns it twice, with both signs, if it has a "\pm".
  std::optional<std::vector<AnswerExpression>> WithBothSigns() {
    const size_t begin = tokens_.at();
    BothSigns& signs = values_.both_signs();
    const absl::Cleanup restore = [&signs, outer = std::exchange(signs, {})] {
      signs = outer;
    };
    auto plus = Relation();
    if (!plus.has_value()) return std::nullopt;
    std::vector<AnswerExpression> items;
    items.push_back(*std::move(plus));
    // Only outer levels expand "\pm": every further level would double the
    // work.
    if (!signs.are_there || tokens_.depth() > 2) return items;
    const size_t end = tokens_.at();
    tokens_.GoTo(begin);
    signs.sign = -1;
    auto minus = Relation();
    if (!minus.has_value() || tokens_.at() != end) return std::nullopt;
    items.push_back(*std::move(minus));
    return items;
  }

  std::optional<std::string> TakeRelation() {
    for (const char* symbol : {"=", "<", "<=", ">", ">=", "!=", "~="}) {
      if (tokens_.Take(symbol)) return symbol;
    }
    if (tokens_.TakeCommand("in")) return "in";
    return std::nullopt;
  }

  std::optional<AnswerExpression> Relation() {
    const size_t begin = tokens_.at();
    auto first = Union();
    if (!first.has_value()) first = NameFrom(begin);
    if (!first.has_value()) return std::nullopt;
    const size_t end = tokens_.at();
    AnswerExpression relation = Compound(Form::kRelation, {});
    relation.parts.push_back(*std::move(first));
    while (auto symbol = TakeRelation()) {
      auto next = Union();
      if (!next.has_value() || relation.parts.size() >= kMaxParts) {
        return std::nullopt;
      }
      relation.relations.push_back(*std::move(symbol));
      relation.parts.push_back(*std::move(next));
    }
    if (relation.relations.empty()) return std::move(relation.parts.front());
    relation.is_assignment = IsName(begin, end, relation.parts.front()) ||
                             IsOfNames(begin, end, relation.parts.front());
    return relation;
  }

  // Reads the tokens from `begin` up to a "=" as a name, such as "m\angle A".
  std::optional<AnswerExpression> NameFrom(size_t begin) {
    // Only outer levels try this, as in WithBothSigns.
    if (tokens_.depth() > 2) return std::nullopt;
    std::string name;
    int open = 0;
    for (tokens_.GoTo(begin); !tokens_.at_end(); tokens_.Next()) {
      const LatexToken& token = tokens_.here();
      if (open == 0 && (tokens_.Sees("=") || tokens_.Sees("~="))) {
        if (name.empty()) return std::nullopt;
        return ValueOf(VariableValue(name));
      }
      if (open == 0 && tokens_.Sees(",")) return std::nullopt;
      if (tokens_.Sees("(") || tokens_.Sees("[") || tokens_.Sees("{")) ++open;
      if (tokens_.Sees(")") || tokens_.Sees("]") || tokens_.Sees("}")) --open;
      absl::StrAppend(&name, token.text, " ");
    }
    return std::nullopt;
  }

  // Recognizes "x", "x_1", "(x, y)", "f(x)", "f(2)", "f^{-1}(x)".
  bool IsName(size_t begin,
              size_t end,
              const AnswerExpression& expression) const {
    const auto is_symbol = [](const AnswerExpression& part) {
      return part.kind == Form::kValue && !part.value.symbol.empty();
    };
    if (expression.kind == Form::kInterval || expression.kind == Form::kTuple) {
      return std::ranges::all_of(expression.parts, is_symbol);
    }
    if (expression.kind != Form::kValue) return false;
    if (is_symbol(expression)) return true;
    if (tokens_.TokenAt(begin).kind != Kind::kLetter) return false;
    size_t at = begin + 1;
    for (const char* part : {"^", "{", "-"}) at += tokens_.SeesAt(at, part);
    if (at > begin + 1) at += 2;  // "1", "}"
    return end - at == 3 && tokens_.SeesAt(at, "(") &&
           (tokens_.TokenAt(at + 1).kind == Kind::kLetter ||
            tokens_.TokenAt(at + 1).kind == Kind::kNumber) &&
           tokens_.SeesAt(at + 2, ")");
  }

  // Recognizes "PQ", "AB + CD", "\frac{a}{b}", "\sin A": texts that consist of
  // names, with numbers only in subscripts.
  bool IsOfNames(size_t begin,
                 size_t end,
                 const AnswerExpression& expression) const {
    if (expression.kind != Form::kValue && expression.kind != Form::kRatio) {
      return false;
    }
    bool has_name = false;
    for (size_t i = begin; i < end; ++i) {
      const LatexToken& token = tokens_.TokenAt(i);
      switch (token.kind) {
        case Kind::kNumber:
          return false;
        case Kind::kLetter:
          if (token.text == "e" || token.text == "i") return false;
          has_name = true;
          break;
        case Kind::kWord:
        case Kind::kText:
          has_name = true;
          break;
        case Kind::kCommand:
          for (const char* number : {"sqrt", "log", "pi", "infty", "circ"}) {
            if (token.text == number) return false;
          }
          break;
        case Kind::kSymbol:
          if (token.text == "-" || token.text == "!" || token.text == "%") {
            return false;
          }
          if (token.text == "_") i = EndOfScript(i + 1, end);
          break;
      }
    }
    return has_name;
  }

  // Returns the index of the last token of the subscript that begins at `at`.
  size_t EndOfScript(size_t at, size_t end) const {
    int open = 0;
    for (; at < end; ++at) {
      if (tokens_.SeesAt(at, "{")) ++open;
      if (tokens_.SeesAt(at, "}")) --open;
      if (open == 0) break;
    }
    return at;
  }

  std::optional<AnswerExpression> Union() {
    std::vector<AnswerExpression> parts;
    do {
      auto part = Operand();
      if (!part.has_value() || parts.size() >= kMaxParts) return std::nullopt;
      parts.push_back(*std::move(part));
    } while (tokens_.TakeCommand("cup"));
    if (parts.size() == 1) return std::move(parts.front());
    return Compound(Form::kUnion, std::move(parts));
  }

  std::optional<AnswerExpression> Operand() {
    if (tokens_.TakeCommand("emptyset")) return Compound(Form::kEmptySet, {});
    if (tokens_.SeesCommand("begin")) return Matrix();
    if (tokens_.Sees("\\{")) return Set();
    if (tokens_.Sees("(") || tokens_.Sees("[")) {
      const size_t begin = tokens_.at();
      auto bracket = Bracketed();
      // One item in brackets is the beginning of a sum.
      if (bracket.has_value()) return bracket;
      tokens_.GoTo(begin);
    }
    if (tokens_.Sees("-") && tokens_.SeesCommandAt(tokens_.at() + 1, "begin")) {
      tokens_.Take("-");
      return MatrixTimes(ExactValue(ExactNumber::Of(-1)));
    }
    auto ratio = values_.RatioOf();
    if (!ratio.has_value()) return std::nullopt;
    if (ratio->size() == 1) {
      tokens_.Take("*");
      return tokens_.SeesCommand("begin") ? MatrixTimes(ratio->front())
                                          : ValueOf(std::move(ratio->front()));
    }
    AnswerExpression expression = Compound(Form::kRatio, {});
    for (MathValue& part : *ratio) {
      expression.parts.push_back(ValueOf(std::move(part)));
    }
    return expression;
  }

  std::optional<AnswerExpression> Set() {
    tokens_.Take("\\{");
    if (tokens_.Take("\\}")) return Compound(Form::kEmptySet, {});
    auto items = Items();
    if (!items.has_value() || !tokens_.Take("\\}")) return std::nullopt;
    return Compound(Form::kList, *std::move(items));
  }

  // Reads a tuple, an interval or a matrix; returns nothing for any other
  // single item.
  std::optional<AnswerExpression> Bracketed() {
    const bool left_open = tokens_.Take("(");
    if (!left_open) tokens_.Take("[");
    size_t num_written = 0;
    auto items = Items(&num_written);
    if (!items.has_value()) return std::nullopt;
    const bool is_matrix =
        num_written == 1 && items->front().kind == Form::kMatrix;
    if (num_written < 2 && !is_matrix) return std::nullopt;
    const bool right_open = tokens_.Take(")");
    if (!right_open && !tokens_.Take("]")) return std::nullopt;
    const bool is_interval = items->size() == 2;
    if (!is_interval && left_open != right_open) return std::nullopt;
    if (is_matrix) return std::move(items->front());
    AnswerExpression expression = Compound(
        is_interval ? Form::kInterval : Form::kTuple, *std::move(items));
    expression.left_open = left_open;
    expression.right_open = right_open;
    return expression;
  }

  std::optional<AnswerExpression> Matrix() {
    tokens_.TakeCommand("begin");
    std::vector<AnswerExpression> rows;
    std::vector<AnswerExpression> row;
    while (true) {
      if (tokens_.TakeCommand("end")) break;
      auto entry = Relation();
      if (!entry.has_value() || row.size() >= kMaxParts) return std::nullopt;
      row.push_back(*std::move(entry));
      if (tokens_.Take("&")) continue;
      const bool ends_row = tokens_.Take("\\\\");
      if (!ends_row && !tokens_.SeesCommand("end")) return std::nullopt;
      rows.push_back(Compound(Form::kTuple, std::exchange(row, {})));
      if (rows.size() > kMaxParts) return std::nullopt;
    }
    if (!row.empty() || rows.empty()) return std::nullopt;
    return Compound(Form::kMatrix, std::move(rows));
  }

  // Reads the matrix that begins here, and multiplies its entries by `factor`.
  std::optional<AnswerExpression> MatrixTimes(const MathValue& factor) {
    auto matrix = Matrix();
    if (!matrix.has_value()) return std::nullopt;
    for (AnswerExpression& row : matrix->parts) {
      for (AnswerExpression& entry : row.parts) {
        if (entry.kind != Form::kValue) return std::nullopt;
        entry.value = Product(factor, entry.value);
      }
    }
    return matrix;
  }

  TokenReader tokens_;
  ValueParser values_;
};

}  // namespace

std::optional<AnswerExpression> ParseAnswer(
    const std::vector<LatexToken>& tokens) {
  return AnswerParser(tokens).Answer();
}

}  // namespace dapd
