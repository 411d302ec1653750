// Recursive descent over the tokens of an answer:
//
//   answer    = relation { "," relation }
//   relation  = union { ("=" | "<" | ...) union }
//   union     = operand { "\cup" operand }
//   operand   = set | interval | tuple | matrix | sum
//   sum       = ["+" | "-" | "\pm"] product { ("+" | "-" | "\pm") product }
//   product   = power { ["*" | "/" | ":"] power }
//   power     = primary { "!" | "%" | "^" script }
#include <limits>
#include <numbers>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/data/grading/answer_expression.h"

namespace dapd {
namespace {

using Kind = LatexToken::Kind;
using Form = AnswerExpression::Kind;

constexpr int kMaxDepth = 64;
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

// Each function gives nothing where the tokens do not fit; the position is then
// of no use any more, but where a caller says that it sets it back.
class Parser {
 public:
  explicit Parser(std::span<const LatexToken> tokens) : tokens_(tokens) {}

  std::optional<AnswerExpression> Answer() {
    auto answer = List();
    if (!answer.has_value() || at_ != tokens_.size()) return std::nullopt;
    return answer;
  }

 private:
  class Deeper {
   public:
    explicit Deeper(int* depth) : depth_(depth) { ++*depth_; }
    ~Deeper() { --*depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    int* depth_;
  };

  bool Sees(absl::string_view symbol) const { return SeesAt(at_, symbol); }
  bool SeesAt(size_t at, absl::string_view symbol) const {
    return at < tokens_.size() && tokens_[at].kind == Kind::kSymbol &&
           tokens_[at].text == symbol;
  }
  bool SeesCommand(absl::string_view name) const {
    return at_ < tokens_.size() && tokens_[at_].kind == Kind::kCommand &&
           tokens_[at_].text == name;
  }
  bool SeesKind(Kind kind) const {
    return at_ < tokens_.size() && tokens_[at_].kind == kind;
  }
  bool Take(absl::string_view symbol) {
    if (!Sees(symbol)) return false;
    ++at_;
    return true;
  }
  bool TakeCommand(absl::string_view name) {
    if (!SeesCommand(name)) return false;
    ++at_;
    return true;
  }

  // One or several items with commas between them, as far as they go. An item
  // with a "\pm" counts twice, but not in `num_written`.
  std::optional<std::vector<AnswerExpression>> Items(
      size_t* num_written = nullptr) {
    const Deeper deeper(&depth_);
    if (depth_ > kMaxDepth) return std::nullopt;
    std::vector<AnswerExpression> items;
    do {
      // "2, and 3": two separators are one.
      while (!items.empty() && Take(",")) {
      }
      auto item = BothSigns();
      if (num_written != nullptr) ++*num_written;
      if (!item.has_value() || items.size() >= kMaxParts) return std::nullopt;
      for (AnswerExpression& each : *item) items.push_back(std::move(each));
    } while (Take(","));
    return items;
  }

  std::optional<AnswerExpression> List() {
    auto items = Items();
    if (!items.has_value()) return std::nullopt;
    if (items->size() == 1) return std::move(items->front());
    return Compound(Form::kList, *std::move(items));
  }

  // A relation, twice if it has a "\pm".
  std::optional<std::vector<AnswerExpression>> BothSigns() {
    const size_t begin = at_;
    const absl::Cleanup restore = [this,
                                   both = std::exchange(has_both_signs_, false),
                                   sign = std::exchange(sign_, 1)] {
      has_both_signs_ = both;
      sign_ = sign;
    };
    auto plus = Relation();
    if (!plus.has_value()) return std::nullopt;
    std::vector<AnswerExpression> items;
    items.push_back(*std::move(plus));
    // Only where answers have it: at every level it would double the work.
    if (!has_both_signs_ || depth_ > 2) return items;
    const size_t end = std::exchange(at_, begin);
    sign_ = -1;
    auto minus = Relation();
    if (!minus.has_value() || at_ != end) return std::nullopt;
    items.push_back(*std::move(minus));
    return items;
  }

  std::optional<std::string> TakeRelation() {
    for (const char* symbol : {"=", "<", "<=", ">", ">=", "!="}) {
      if (Take(symbol)) return symbol;
    }
    if (TakeCommand("in")) return "in";
    return std::nullopt;
  }

  std::optional<AnswerExpression> Relation() {
    const size_t begin = at_;
    auto first = Union();
    if (!first.has_value()) return std::nullopt;
    const size_t end = at_;
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
    return end - begin == 4 && tokens_[begin].kind == Kind::kLetter &&
           SeesAt(begin + 1, "(") && tokens_[begin + 2].kind == Kind::kLetter &&
           SeesAt(begin + 3, ")");
  }

  std::optional<AnswerExpression> Union() {
    std::vector<AnswerExpression> parts;
    do {
      auto part = Operand();
      if (!part.has_value() || parts.size() >= kMaxParts) return std::nullopt;
      parts.push_back(*std::move(part));
    } while (TakeCommand("cup"));
    if (parts.size() == 1) return std::move(parts.front());
    return Compound(Form::kUnion, std::move(parts));
  }

  std::optional<AnswerExpression> Operand() {
    if (TakeCommand("emptyset")) return Compound(Form::kEmptySet, {});
    if (SeesCommand("begin")) return Matrix();
    if (Sees("\\{")) return Set();
    if (Sees("(") || Sees("[")) {
      const size_t begin = at_;
      auto bracket = Bracketed();
      // One item in brackets is the beginning of a sum.
      if (bracket.has_value()) return bracket;
      at_ = begin;
      digit_ = 0;
    }
    auto sum = SumOf();
    if (!sum.has_value()) return std::nullopt;
    return ValueOf(*std::move(sum));
  }

  std::optional<AnswerExpression> Set() {
    Take("\\{");
    if (Take("\\}")) return Compound(Form::kEmptySet, {});
    auto items = Items();
    if (!items.has_value() || !Take("\\}")) return std::nullopt;
    return Compound(Form::kList, *std::move(items));
  }

  // A tuple or an interval; nothing for a single item.
  std::optional<AnswerExpression> Bracketed() {
    const bool left_open = Take("(");
    if (!left_open) Take("[");
    size_t num_written = 0;
    auto items = Items(&num_written);
    if (!items.has_value() || num_written < 2) return std::nullopt;
    const bool right_open = Take(")");
    if (!right_open && !Take("]")) return std::nullopt;
    const bool is_interval = items->size() == 2;
    if (!is_interval && left_open != right_open) return std::nullopt;
    AnswerExpression expression = Compound(
        is_interval ? Form::kInterval : Form::kTuple, *std::move(items));
    expression.left_open = left_open;
    expression.right_open = right_open;
    return expression;
  }

  std::optional<AnswerExpression> Matrix() {
    TakeCommand("begin");
    std::vector<AnswerExpression> rows;
    std::vector<AnswerExpression> row;
    while (true) {
      if (TakeCommand("end")) break;
      auto entry = Relation();
      if (!entry.has_value() || row.size() >= kMaxParts) return std::nullopt;
      row.push_back(*std::move(entry));
      if (Take("&")) continue;
      const bool ends_row = Take("\\\\");
      if (!ends_row && !SeesCommand("end")) return std::nullopt;
      rows.push_back(Compound(Form::kTuple, std::exchange(row, {})));
      if (rows.size() > kMaxParts) return std::nullopt;
    }
    if (!row.empty() || rows.empty()) return std::nullopt;
    return Compound(Form::kMatrix, std::move(rows));
  }

  std::optional<MathValue> SumOf() {
    const Deeper deeper(&depth_);
    if (depth_ > kMaxDepth) return std::nullopt;
    std::optional<MathValue> sum;
    while (true) {
      int sign = 1;
      bool has_sign = false;
      while (true) {
        if (Take("-")) {
          sign = -sign;
        } else if (TakeCommand("pm")) {
          has_both_signs_ = true;
          sign *= sign_;
        } else if (TakeCommand("mp")) {
          has_both_signs_ = true;
          sign *= -sign_;
        } else if (!Take("+")) {
          break;
        }
        has_sign = true;
      }
      if (sum.has_value() && !has_sign) return sum;
      auto product = ProductOf();
      if (!product.has_value()) return std::nullopt;
      MathValue term =
          sign > 0 ? *std::move(product) : Negated(*std::move(product));
      sum = sum.has_value() ? Sum(*sum, term) : std::move(term);
    }
  }

  bool StartsFactor() const {
    if (at_ >= tokens_.size()) return false;
    switch (tokens_[at_].kind) {
      case Kind::kNumber:
      case Kind::kLetter:
        return true;
      case Kind::kCommand: {
        const std::string& name = tokens_[at_].text;
        return name != "cup" && name != "cap" && name != "in" &&
               name != "end" && name != "pm" && name != "mp" && name != "mod" &&
               name != "rfloor" && name != "rceil" && name != "setminus" &&
               name != "to" && name != "Rightarrow";
      }
      case Kind::kSymbol:
        return Sees("(") || Sees("{") || (Sees("[") && !in_bars_) ||
               (Sees("|") && !in_bars_);
      case Kind::kText:
      case Kind::kWord:
        return false;
    }
    return false;
  }

  std::optional<MathValue> ProductOf() {
    auto product = PowerOf();
    if (!product.has_value()) return std::nullopt;
    while (true) {
      const bool divides = Sees("/") || Sees(":");
      if (divides || Sees("*")) {
        ++at_;
        int sign = 1;
        while (Sees("-") || Sees("+")) {
          if (Take("-")) sign = -sign;
          Take("+");
        }
        auto factor = PowerOf();
        if (!factor.has_value()) return std::nullopt;
        if (sign < 0) factor = Negated(*factor);
        product =
            divides ? Quotient(*product, *factor) : Product(*product, *factor);
      } else if (StartsFactor()) {
        auto factor = PowerOf();
        if (!factor.has_value()) return std::nullopt;
        product = Product(*product, *factor);
      } else {
        return product;
      }
    }
  }

  std::optional<MathValue> PowerOf() {
    const Deeper deeper(&depth_);
    if (depth_ > kMaxDepth) return std::nullopt;
    auto base = Primary();
    while (base.has_value()) {
      if (Take("!")) {
        base = Factorial(*base);
      } else if (Take("%")) {
        base = Percentage(*base);
      } else if (Take("^")) {
        const auto exponent = Script();
        if (!exponent.has_value()) return std::nullopt;
        base = Power(*base, *exponent);
      } else {
        break;
      }
    }
    return base;
  }

  // What stands behind ^ or _, or is the argument of a command: a group in
  // braces, or one token (of a number its first digit, as LaTeX has it, where
  // `one_digit`).
  std::optional<MathValue> Script(bool one_digit = false) {
    const Deeper deeper(&depth_);
    if (depth_ > kMaxDepth) return std::nullopt;
    if (Take("{")) {
      auto value = SumOf();
      if (!value.has_value() || !Take("}")) return std::nullopt;
      return value;
    }
    if (Take("-")) {
      auto value = Script(one_digit);
      if (!value.has_value()) return std::nullopt;
      return Negated(*value);
    }
    if (one_digit && SeesKind(Kind::kNumber)) {
      const std::string& digits = tokens_[at_].text;
      if (digit_ >= digits.size() || digits.find('.') != std::string::npos) {
        return std::nullopt;
      }
      const auto digit =
          ExactNumber::FromDecimal(absl::string_view(digits).substr(digit_, 1));
      if (++digit_ == digits.size()) {
        digit_ = 0;
        ++at_;
      }
      if (!digit.has_value()) return std::nullopt;
      return ExactValue(*digit);
    }
    if (SeesKind(Kind::kNumber)) return Number(/*may_be_mixed=*/false);
    return Primary();
  }

  // The two arguments of \frac and \binom: "\frac12" has one digit each, and
  // what is left of the digits is a factor behind it.
  std::optional<std::pair<MathValue, MathValue>> TwoArguments() {
    const auto first = Script(/*one_digit=*/true);
    if (!first.has_value()) return std::nullopt;
    const auto second = Script(/*one_digit=*/true);
    if (!second.has_value()) return std::nullopt;
    return std::pair(*first, *second);
  }

  std::optional<MathValue> Number(bool may_be_mixed) {
    const std::string text =
        digit_ == 0 ? tokens_[at_].text : tokens_[at_].text.substr(digit_);
    digit_ = 0;
    ++at_;
    const auto number = ExactNumber::FromDecimal(text);
    if (!number.has_value()) return std::nullopt;
    MathValue value = ExactValue(*number);
    value.is_decimal = text.find('.') != std::string::npos;
    if (TakeCommand("repeating")) return Repeating(value, text);
    // The base of a numeral, as in 1011_2, is left out.
    if (Take("_") && !Script().has_value()) return std::nullopt;
    if (may_be_mixed && !value.is_decimal && SeesCommand("frac")) {
      return Mixed(value);
    }
    return value;
  }

  // 0.1\overline{6} = 0.1 + 6 / 90.
  std::optional<MathValue> Repeating(const MathValue& value,
                                     const std::string& text) {
    if (!SeesKind(Kind::kNumber)) return std::nullopt;
    const std::string& period = tokens_[at_++].text;
    const size_t dot = text.find('.');
    const size_t decimals =
        dot == std::string::npos ? 0 : text.size() - dot - 1;
    const auto digits = ExactNumber::FromDecimal(period);
    const auto nines = ExactNumber::FromDecimal(
        std::string(period.size(), '9') + std::string(decimals, '0'));
    if (!digits.has_value() || !nines.has_value()) return std::nullopt;
    return Sum(ExactValue(*value.exact),
               Quotient(ExactValue(*digits), ExactValue(*nines)));
  }

  // 1\frac{2}{3} is a sum where all three are integers.
  std::optional<MathValue> Mixed(const MathValue& whole) {
    const size_t begin = at_;
    TakeCommand("frac");
    const auto arguments = TwoArguments();
    const auto is_integer = [](const MathValue& value) {
      return value.exact.has_value() && value.exact->is_integer();
    };
    if (!arguments.has_value()) return std::nullopt;
    if (is_integer(arguments->first) && is_integer(arguments->second)) {
      return Sum(whole, Quotient(arguments->first, arguments->second));
    }
    at_ = begin;
    digit_ = 0;
    return whole;
  }

  std::optional<MathValue> Letter() {
    std::string name = tokens_[at_++].text;
    if (Take("_")) {
      // The subscript is a part of the name.
      if (Take("{")) {
        absl::StrAppend(&name, "_");
        while (at_ < tokens_.size() && !Sees("}")) {
          absl::StrAppend(&name, tokens_[at_++].text);
        }
        if (!Take("}")) return std::nullopt;
      } else if (at_ < tokens_.size()) {
        absl::StrAppend(&name, "_", tokens_[at_++].text);
      } else {
        return std::nullopt;
      }
    } else if (name == "e") {
      return FloatValue({std::numbers::e_v<long double>, 0});
    } else if (name == "i") {
      return FloatValue({0, 1});
    }
    return VariableValue(name);
  }

  std::optional<MathValue> Primary() {
    if (at_ >= tokens_.size()) return std::nullopt;
    switch (tokens_[at_].kind) {
      case Kind::kNumber:
        return Number(/*may_be_mixed=*/true);
      case Kind::kLetter:
        return Letter();
      case Kind::kCommand:
        return CommandValue();
      case Kind::kSymbol:
        return Grouped();
      case Kind::kText:
      case Kind::kWord:
        return std::nullopt;
    }
    return std::nullopt;
  }

  std::optional<MathValue> Grouped() {
    for (const auto& [open, close] :
         {std::pair("(", ")"), std::pair("[", "]"), std::pair("{", "}")}) {
      if (!Take(open)) continue;
      const bool bars = std::exchange(in_bars_, false);
      auto value = SumOf();
      in_bars_ = bars;
      if (!value.has_value() || !Take(close)) return std::nullopt;
      return value;
    }
    if (!in_bars_ && Take("|")) {
      in_bars_ = true;
      auto value = SumOf();
      in_bars_ = false;
      if (!value.has_value() || !Take("|")) return std::nullopt;
      return FunctionValue("abs", *value);
    }
    return std::nullopt;
  }

  std::optional<MathValue> CommandValue() {
    const std::string name = tokens_[at_++].text;
    if (name == "pi") {
      return FloatValue({std::numbers::pi_v<long double>, 0});
    }
    if (name == "infty") {
      return FloatValue({std::numeric_limits<long double>::infinity(), 0});
    }
    if (name == "frac" || name == "binom") {
      const auto arguments = TwoArguments();
      if (!arguments.has_value()) return std::nullopt;
      return name == "frac" ? Quotient(arguments->first, arguments->second)
                            : Binomial(arguments->first, arguments->second);
    }
    if (name == "sqrt") return SquareRoot();
    if (name == "lfloor" || name == "lceil") {
      auto value = SumOf();
      if (!value.has_value() ||
          !TakeCommand(name == "lfloor" ? "rfloor" : "rceil")) {
        return std::nullopt;
      }
      return FunctionValue(name.substr(1), *value);
    }
    return Function(name);
  }

  std::optional<MathValue> SquareRoot() {
    MathValue degree = ExactValue(ExactNumber::Of(2));
    if (Take("[")) {
      const auto given = SumOf();
      if (!given.has_value() || !Take("]")) return std::nullopt;
      degree = *given;
    }
    const auto radicand = Script(/*one_digit=*/false);
    if (!radicand.has_value()) return std::nullopt;
    return Root(*radicand, degree);
  }

  // \sin^2 x, \log_{2} 8, \ln(x): the argument is one product without a
  // function in it.
  std::optional<MathValue> Function(const std::string& name) {
    const Deeper deeper(&depth_);
    if (depth_ > kMaxDepth) return std::nullopt;
    if (!FunctionValue(name, ExactValue(ExactNumber::Of(1))).has_value()) {
      return std::nullopt;
    }
    std::optional<MathValue> base;
    std::optional<MathValue> power;
    if (Take("_")) {
      base = Script(/*one_digit=*/false);
      if (!base.has_value()) return std::nullopt;
    }
    if (Take("^")) {
      power = Script(/*one_digit=*/false);
      if (!power.has_value()) return std::nullopt;
    }
    const auto argument = Argument();
    if (!argument.has_value()) return std::nullopt;
    auto value = FunctionValue(base.has_value() ? "ln" : name, *argument);
    if (base.has_value()) {
      value = Quotient(*value, *FunctionValue("ln", *base));
    }
    if (power.has_value()) {
      const bool is_inverse =
          power->exact.has_value() && *power->exact == ExactNumber::Of(-1);
      const auto inverse = FunctionValue(absl::StrCat("arc", name), *argument);
      value =
          is_inverse && inverse.has_value() ? inverse : Power(*value, *power);
    }
    return value;
  }

  std::optional<MathValue> Argument() {
    if (Sees("(") || Sees("{") || Sees("[") || Sees("|")) return Primary();
    const bool is_negative = Take("-");
    auto argument = PowerOf();
    while (argument.has_value() &&
           (SeesKind(Kind::kNumber) || SeesKind(Kind::kLetter) ||
            SeesCommand("pi"))) {
      const auto factor = PowerOf();
      if (!factor.has_value()) return std::nullopt;
      argument = Product(*argument, *factor);
    }
    if (argument.has_value() && is_negative) argument = Negated(*argument);
    return argument;
  }

  std::span<const LatexToken> tokens_;
  size_t at_ = 0;
  size_t digit_ = 0;  // digits of the number at at_ that are taken
  int depth_ = 0;
  int sign_ = 1;  // what \pm stands for at the moment
  bool has_both_signs_ = false;
  bool in_bars_ = false;
};

}  // namespace

std::optional<AnswerExpression> ParseAnswer(
    const std::vector<LatexToken>& tokens) {
  return Parser(tokens).Answer();
}

}  // namespace dapd
