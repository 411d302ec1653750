#include "common/data/self_teacher.h"

#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"

#include "common/base/utf8.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

// Returns whether \s of Python's regular expressions matches: it stands for the
// property White_Space and the four separators of ASCII.
bool IsSpace(char32_t c) {
  return IsWhitespace(static_cast<int32_t>(c)) || (c >= 0x1c && c <= 0x1f);
}

absl::string_view WithoutLeadingSpace(absl::string_view text) {
  char32_t c = 0;
  for (size_t length = DecodeCharacter(text, &c); length > 0 && IsSpace(c);
       length = DecodeCharacter(text, &c)) {
    text.remove_prefix(length);
  }
  return text;
}

}  // namespace

std::vector<TeacherContext> TeacherContexts(std::span<const GradedAnswer> group,
                                            FeedbackRule rule) {
  // No answer needs more than the first two right answers.
  std::vector<size_t> right;
  for (size_t i = 0; i < group.size() && right.size() < 2; ++i) {
    if (group[i].correct) right.push_back(i);
  }
  std::vector<TeacherContext> contexts(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    TeacherContext& context = contexts[i];
    const size_t first_other = !right.empty() && right[0] == i ? 1 : 0;
    if (first_other < right.size()) {
      context.sibling = WithoutThoughts(group[right[first_other]].text);
    }
    const bool is_told =
        rule == FeedbackRule::kAlways ||
        (rule == FeedbackRule::kWithoutSibling && !context.sibling.has_value());
    if (is_told && !WithoutLeadingSpace(group[i].feedback).empty()) {
      context.feedback = group[i].feedback;
    }
  }
  return contexts;
}

std::string WithoutThoughts(const std::string& text) {
  constexpr absl::string_view kOpen = "<think>";
  constexpr absl::string_view kClose = "</think>";
  absl::string_view rest = text;
  std::string left;
  while (true) {
    const size_t open = rest.find(kOpen);
    const size_t close = open == absl::string_view::npos
                             ? open
                             : rest.find(kClose, open + kOpen.size());
    if (close == absl::string_view::npos) break;
    absl::StrAppend(&left, rest.substr(0, open));
    rest = WithoutLeadingSpace(rest.substr(close + kClose.size()));
  }
  return absl::StrCat(left, rest);
}

}  // namespace dapd
