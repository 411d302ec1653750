#include "common/data/grade_answer.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "common/data/grading/answer_expression.h"
#include "common/data/grading/latex_lexer.h"

namespace dapd {
namespace {

// Lower case without delimiters of mathematics, full stops at the end, and
// white space but between two digits ("2 1/2" is not "21/2"): two texts that
// look alike.
std::string Squeeze(absl::string_view text) {
  const std::string plain = absl::StrReplaceAll(text,
                                                {{"\\left", ""},
                                                 {"\\right", ""},
                                                 {"\\dfrac", "\\frac"},
                                                 {"\\tfrac", "\\frac"},
                                                 {"\\!", ""},
                                                 {"\\,", " "},
                                                 {"\\;", " "},
                                                 {"\\ ", " "},
                                                 {"$", ""},
                                                 {"\\(", ""},
                                                 {"\\)", ""}});
  std::string squeezed;
  bool space = false;
  for (const char c : plain) {
    if (absl::ascii_isspace(c)) {
      space = true;
      continue;
    }
    if (std::exchange(space, false) && !squeezed.empty() &&
        absl::ascii_isdigit(squeezed.back()) && absl::ascii_isdigit(c)) {
      squeezed.push_back(' ');
    }
    squeezed.push_back(c);
  }
  absl::string_view trimmed = squeezed;
  while (absl::ConsumeSuffix(&trimmed, ".")) {
  }
  return absl::AsciiStrToLower(trimmed);
}

// Delimiters around the whole answer.
absl::string_view InsideDelimiters(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  for (const auto& [open, close] :
       {std::pair("\\(", "\\)"), std::pair("\\[", "\\]")}) {
    if (absl::StartsWith(text, open) && absl::EndsWith(text, close) &&
        text.size() >= 4) {
      text = absl::StripAsciiWhitespace(text.substr(2, text.size() - 4));
    }
  }
  return text;
}

bool SameMathematics(absl::string_view given,
                     absl::string_view expected,
                     Commas commas) {
  const auto a = LexLatex(InsideDelimiters(given), commas);
  const auto b = LexLatex(InsideDelimiters(expected), commas);
  if (!a.has_value() || !b.has_value()) return false;
  if (a->is_prose || b->is_prose) {
    return !a->letters.empty() && a->letters == b->letters;
  }
  const auto left = ParseAnswer(a->tokens);
  if (!left.has_value()) return false;
  const auto right = ParseAnswer(b->tokens);
  return right.has_value() && SameAnswer(*left, *right);
}

}  // namespace

std::optional<std::string> ExtractBoxed(absl::string_view text) {
  constexpr absl::string_view kBoxed = "\\boxed";
  // One pass: a model may repeat an opening thousands of times.
  std::vector<size_t> open;  // braces that are not yet closed
  size_t begin = 0;          // of the last box's content, if `end` is not 0
  size_t end = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      // "\{" need not be balanced: "\left\{ ... \right.".
      ++i;
      continue;
    }
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
  const std::string a = Squeeze(given);
  const std::string b = Squeeze(expected);
  if (a.empty() || b.empty()) return false;
  return a == b || SameMathematics(given, expected, Commas::kThousands) ||
         SameMathematics(given, expected, Commas::kSeparators);
}

Grade GradeAnswer(absl::string_view text, absl::string_view expected) {
  std::optional<std::string> boxed = ExtractBoxed(text);
  if (!boxed.has_value()) return {};
  const bool correct = AnswersEqual(*boxed, expected);
  return {true, correct, *std::move(boxed)};
}

}  // namespace dapd
