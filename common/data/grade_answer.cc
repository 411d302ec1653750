#include "common/data/grade_answer.h"

#include <cctype>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace dapd {
namespace {

constexpr size_t kMaxDigits = 1000;

bool IsDigits(absl::string_view text) {
  if (text.empty() || text.size() > kMaxDigits) return false;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
  }
  return true;
}

// Exact non-negative integers of any length as decimal digits.
std::string StripZeros(std::string digits) {
  const size_t first = digits.find_first_not_of('0');
  return first == std::string::npos ? "0" : digits.substr(first);
}

std::string Multiply(const std::string& a, const std::string& b) {
  std::vector<int> product(a.size() + b.size(), 0);
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      const int sum = product[i + j + 1] + (a[i] - '0') * (b[j] - '0');
      product[i + j + 1] = sum % 10;
      product[i + j] += sum / 10;
    }
  }
  std::string digits;
  for (const int digit : product) {
    digits.push_back(static_cast<char>('0' + digit));
  }
  return StripZeros(digits);
}

// sign * numerator / denominator, exact.
struct Rational {
  bool negative = false;
  std::string numerator;
  std::string denominator;

  bool operator==(const Rational& other) const {
    const std::string left = Multiply(numerator, other.denominator);
    const std::string right = Multiply(other.numerator, denominator);
    return left == right && (left == "0" || negative == other.negative);
  }
};

// "1,234,567" -> "1234567"; anything else stays.
std::string DropThousands(const std::string& text) {
  std::vector<size_t> commas;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',') commas.push_back(i);
  }
  if (commas.empty()) return text;
  const size_t integer_end = std::min(text.find('.'), text.size());
  size_t expected = integer_end;
  for (size_t k = commas.size(); k-- > 0;) {
    if (expected < 4 || commas[k] != expected - 4) return text;
    expected = commas[k];
  }
  if (expected == 0 || expected > 3) return text;
  return absl::StrReplaceAll(text, {{",", ""}});
}

// 12, 1.25, .5
std::optional<Rational> ParseDecimal(std::string text) {
  text = DropThousands(text);
  const size_t dot = text.find('.');
  const std::string whole = text.substr(0, dot);
  const std::string fraction =
      dot == std::string::npos ? "" : text.substr(dot + 1);
  if (whole.empty() && fraction.empty()) return std::nullopt;
  if ((!whole.empty() && !IsDigits(whole)) ||
      (!fraction.empty() && !IsDigits(fraction))) {
    return std::nullopt;
  }
  return Rational{false,
                  StripZeros("0" + whole + fraction),
                  "1" + std::string(fraction.size(), '0')};
}

std::optional<Rational> ParseNumber(const std::string& text) {
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  const bool negative = absl::ConsumePrefix(&rest, "-");
  if (!negative) absl::ConsumePrefix(&rest, "+");
  rest = absl::StripAsciiWhitespace(rest);
  std::string numerator;
  std::string denominator = "1";
  if (absl::ConsumePrefix(&rest, "\\frac{") && absl::EndsWith(rest, "}")) {
    const size_t middle = rest.find("}{");
    if (middle == absl::string_view::npos) return std::nullopt;
    numerator = std::string(rest.substr(0, middle));
    denominator =
        std::string(rest.substr(middle + 2, rest.size() - middle - 3));
  } else if (const size_t slash = rest.find('/');
             slash != absl::string_view::npos) {
    numerator = std::string(rest.substr(0, slash));
    denominator = std::string(rest.substr(slash + 1));
  } else {
    numerator = std::string(rest);
  }
  const auto top =
      ParseDecimal(std::string(absl::StripAsciiWhitespace(numerator)));
  const auto bottom =
      ParseDecimal(std::string(absl::StripAsciiWhitespace(denominator)));
  if (!top.has_value() || !bottom.has_value() || bottom->numerator == "0") {
    return std::nullopt;
  }
  return Rational{negative,
                  Multiply(top->numerator, bottom->denominator),
                  Multiply(top->denominator, bottom->numerator)};
}

// Lower case without white space, mathematics markup and outer decoration.
std::string Normalize(absl::string_view text) {
  std::string plain = absl::StrReplaceAll(text,
                                          {{"\\left", ""},
                                           {"\\right", ""},
                                           {"\\dfrac", "\\frac"},
                                           {"\\tfrac", "\\frac"},
                                           {"\\!", ""},
                                           {"\\,", ""},
                                           {"\\;", ""},
                                           {"\\ ", " "},
                                           {"$", ""},
                                           {"\\%", "%"},
                                           {"{,}", ","},
                                           {"\xE2\x88\x92", "-"}});
  // \text{...} keeps its content.
  for (const char* command : {"\\text{", "\\mathrm{", "\\textbf{"}) {
    for (size_t at = plain.find(command); at != std::string::npos;
         at = plain.find(command)) {
      const size_t close = plain.find('}', at);
      if (close == std::string::npos) break;
      const size_t begin = at + std::string(command).size();
      plain = absl::StrCat(plain.substr(0, at),
                           " ",
                           plain.substr(begin, close - begin),
                           plain.substr(close + 1));
    }
  }
  absl::string_view trimmed = absl::StripAsciiWhitespace(plain);
  while (absl::ConsumeSuffix(&trimmed, ".")) {
  }
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(trimmed));
}

// A number in front of a unit: "12 km", "50%", "3 apples".
std::string DropUnit(const std::string& text) {
  const size_t end = text.find_last_of("0123456789}");
  if (end == std::string::npos || end + 1 == text.size()) return text;
  const std::string unit = text.substr(end + 1);
  for (const char c : unit) {
    const bool allowed = std::isalpha(static_cast<unsigned char>(c)) != 0 ||
                         c == ' ' || c == '%' || c == '^' || c == '/' ||
                         (c & 0x80) != 0;
    if (!allowed) return text;
  }
  return text.substr(0, end + 1);
}

std::string DropSpaces(const std::string& text) {
  return absl::StrReplaceAll(text, {{" ", ""}, {"\n", ""}, {"\t", ""}});
}

}  // namespace

std::optional<std::string> ExtractBoxed(absl::string_view text) {
  constexpr absl::string_view kBoxed = "\\boxed";
  // One pass: a model may repeat an opening thousands of times.
  std::vector<size_t> open;  // braces that are not yet closed
  size_t begin = 0;          // of the last box's content, if `end` is not 0
  size_t end = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') open.push_back(i);
    if (text[i] != '}' || open.empty()) continue;
    const size_t brace = open.back();
    open.pop_back();
    if (brace >= begin && absl::EndsWith(text.substr(0, brace), kBoxed)) {
      begin = brace + 1;
      end = i;
    }
  }
  if (end == 0) return std::nullopt;
  return std::string(text.substr(begin, end - begin));
}

bool AnswersEqual(absl::string_view given, absl::string_view expected) {
  const std::string a = Normalize(given);
  const std::string b = Normalize(expected);
  if (a.empty() || b.empty()) return false;
  const auto number_a = ParseNumber(DropUnit(a));
  const auto number_b = ParseNumber(DropUnit(b));
  if (number_a.has_value() && number_b.has_value()) {
    return *number_a == *number_b;
  }
  return DropSpaces(a) == DropSpaces(b);
}

Grade GradeAnswer(absl::string_view text, absl::string_view expected) {
  std::optional<std::string> boxed = ExtractBoxed(text);
  if (!boxed.has_value()) return {};
  const bool correct = AnswersEqual(*boxed, expected);
  return {true, correct, *std::move(boxed)};
}

}  // namespace dapd
