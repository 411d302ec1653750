#include "common/data/grade_answer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "common/data/grading/answer_expression.h"
#include "common/data/grading/latex_lexer.h"

namespace dapd {
namespace {

// Returns the text in lower case, without delimiters of mathematics, without
// full stops and backslashes at the end, and without white space except between
// two digits ("2 1/2" is not "21/2"). Texts that look alike become equal.
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
  // The content of a box ends without its white space, so that "\\ " leaves a
  // backslash there.
  while (absl::ConsumeSuffix(&trimmed, ".") ||
         (trimmed.size() > 1 && absl::ConsumeSuffix(&trimmed, "\\"))) {
  }
  return absl::AsciiStrToLower(trimmed);
}

// Removes delimiters around the whole answer.
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

// "\boxed{" or "\fbox{", with its content.
struct Box {
  size_t begin = 0;  // beginning of the command
  size_t content = 0;
  size_t end = 0;  // end of the content

  absl::string_view Content(absl::string_view text) const {
    return absl::StripAsciiWhitespace(text.substr(content, end - content));
  }
};

struct Boxes {
  std::vector<Box> closed;  // no box is within another
  bool is_one_open = false;
};

// Returns where the box command in front of a brace begins; npos if there is no
// such command.
size_t CommandBefore(absl::string_view text, size_t brace) {
  const absl::string_view before =
      absl::StripTrailingAsciiWhitespace(text.substr(0, brace));
  for (const absl::string_view command : {"\\boxed", "\\fbox"}) {
    if (absl::EndsWith(before, command)) return before.size() - command.size();
  }
  return absl::string_view::npos;
}

Boxes BoxesOf(absl::string_view text) {
  // One pass suffices, even if a model repeats an opening thousands of times.
  Boxes boxes;
  std::vector<std::pair<size_t, size_t>> open;  // braces, with their commands
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      // "\{" need not be balanced: "\left\{ ... \right.".
      ++i;
      continue;
    }
    if (text[i] == '{') {
      open.emplace_back(i, CommandBefore(text, i));
    }
    if (text[i] != '}' || open.empty()) continue;
    const auto [brace, command] = open.back();
    open.pop_back();
    if (command == absl::string_view::npos) continue;
    // The inner one of two nested boxes counts.
    if (boxes.closed.empty() || brace >= boxes.closed.back().end) {
      boxes.closed.push_back({command, brace + 1, i});
    }
  }
  for (const auto& [brace, command] : open) {
    boxes.is_one_open |= command != absl::string_view::npos;
  }
  return boxes;
}

bool AreOfOneStatement(absl::string_view text, const Box& a, const Box& b) {
  constexpr size_t kClose = 10;
  constexpr size_t kNear = 70;
  const absl::string_view between = text.substr(a.end + 1, b.begin - a.end - 1);
  if (absl::StrContains(between, "</think>")) return false;
  if (between.size() < kClose) return true;
  if (between.size() >= kNear || a.Content(text) == b.Content(text)) {
    return false;
  }
  if (between.find_first_of(",;") != absl::string_view::npos) return true;
  const auto is_word_part = [&](size_t i) {
    return i < between.size() &&
           (absl::ascii_isalnum(between[i]) || between[i] == '_');
  };
  for (const absl::string_view word : {"and", "or"}) {
    for (size_t at = between.find(word); at != absl::string_view::npos;
         at = between.find(word, at + 1)) {
      if ((at == 0 || !is_word_part(at - 1)) &&
          !is_word_part(at + word.size())) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

std::optional<std::string> ExtractBoxed(absl::string_view text) {
  const std::vector<Box> boxes = BoxesOf(text).closed;
  if (boxes.empty()) return std::nullopt;
  std::vector<absl::string_view> contents = {boxes.back().Content(text)};
  for (size_t i = boxes.size() - 1; i > 0; --i) {
    if (!AreOfOneStatement(text, boxes[i - 1], boxes[i])) break;
    const absl::string_view content = boxes[i - 1].Content(text);
    if (content != contents.back()) contents.push_back(content);
  }
  if (contents.size() == 1) return std::string(contents[0]);
  std::reverse(contents.begin(), contents.end());
  return absl::StrJoin(contents, ", ");
}

bool IsUnclear(absl::string_view text) {
  const Boxes boxes = BoxesOf(text);
  if (boxes.closed.empty()) return boxes.is_one_open;
  const std::string stated = *ExtractBoxed(text);
  for (size_t i = 0; i + 1 < boxes.closed.size(); ++i) {
    const absl::string_view content = boxes.closed[i].Content(text);
    // A part of the final statement may stand in a box of its own before it.
    if (!absl::StrContains(stated, content)) return true;
  }
  return false;
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
