// Recursive descent over the tokens of an answer:
//
//   answer    = relation { "," relation }
//   relation  = union { ("=" | "<" | ...) union }
//   union     = operand { "\cup" operand }
//   operand   = set | interval | tuple | matrix | ratio
//
// A ratio, most often a single sum, is read by value_parser.h.
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"

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

// Each function gives nothing where the tokens do not fit; the place is then of
// no use any more, but where a caller says that it goes back.
class AnswerParser {
 public:
  explicit AnswerParser(std::span<const LatexToken> tokens)
      : tokens_(tokens), values_(tokens_) {}

  std::optional<AnswerExpression> Answer() {
    auto answer = List();
    if (!answer.has_value() || !tokens_.at_end()) return std::nullopt;
    return answer;
  }

 private:
  // One or several items with commas between them, as far as they go. An item
  // with a "\pm" counts twice, but not in `num_written`.
  std::optional<std::vector<AnswerExpression>> Items(
      size_t* num_written = nullptr) {
    const TokenReader::Level level(tokens_);
    if (level.is_too_deep()) return std::nullopt;
    std::vector<AnswerExpression> items;
    do {
      // "2, and 3": two separators are one.
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

  // A relation, twice if it has a "\pm".
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
    // Only where answers have it: at every level it would double the work.
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
    for (const char* symbol : {"=", "<", "<=", ">", ">=", "!="}) {
      if (tokens_.Take(symbol)) return symbol;
    }
    if (tokens_.TakeCommand("in")) return "in";
    return std::nullopt;
  }

  std::optional<AnswerExpression> Relation() {
    const size_t begin = tokens_.at();
    auto first = Union();
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
    relation.is_assignment = IsName(begin, end, relation.parts.front());
    return relation;
  }

  // "x", "x_1", "f(x)".
  bool IsName(size_t begin,
              size_t end,
              const AnswerExpression& expression) const {
    if (expression.kind != Form::kValue) return false;
    if (!expression.value.symbol.empty()) return true;
    return end - begin == 4 && tokens_.TokenAt(begin).kind == Kind::kLetter &&
           tokens_.SeesAt(begin + 1, "(") &&
           tokens_.TokenAt(begin + 2).kind == Kind::kLetter &&
           tokens_.SeesAt(begin + 3, ")");
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
    auto ratio = values_.RatioOf();
    if (!ratio.has_value()) return std::nullopt;
    if (ratio->size() == 1) return ValueOf(std::move(ratio->front()));
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

  // A tuple or an interval; nothing for a single item.
  std::optional<AnswerExpression> Bracketed() {
    const bool left_open = tokens_.Take("(");
    if (!left_open) tokens_.Take("[");
    size_t num_written = 0;
    auto items = Items(&num_written);
    if (!items.has_value() || num_written < 2) return std::nullopt;
    const bool right_open = tokens_.Take(")");
    if (!right_open && !tokens_.Take("]")) return std::nullopt;
    const bool is_interval = items->size() == 2;
    if (!is_interval && left_open != right_open) return std::nullopt;
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

  TokenReader tokens_;
  ValueParser values_;
};

}  // namespace

std::optional<AnswerExpression> ParseAnswer(
    const std::vector<LatexToken>& tokens) {
  return AnswerParser(tokens).Answer();
}

}  // namespace dapd
