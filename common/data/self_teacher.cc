#include "common/data/self_teacher.h"

#include <cstddef>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/data/grade_answer.h"

namespace dapd {

std::vector<TeacherContext> TeacherContexts(std::span<const GradedAnswer> group,
                                            FeedbackRule rule) {
  // No answer needs more than the first two.
  std::vector<size_t> right;
  std::vector<std::string> shown;
  for (size_t i = 0; i < group.size() && right.size() < 2; ++i) {
    if (!group[i].correct) continue;
    std::string text = WithoutThoughts(group[i].text);
    if (absl::StripAsciiWhitespace(text).empty()) continue;
    right.push_back(i);
    shown.push_back(std::move(text));
  }
  std::vector<TeacherContext> contexts(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    TeacherContext& context = contexts[i];
    const size_t first_other = !right.empty() && right[0] == i ? 1 : 0;
    if (first_other < right.size()) context.sibling = shown[first_other];
    const bool says_what_is_wrong =
        rule == FeedbackRule::kAlways ||
        (rule == FeedbackRule::kWithoutSibling && context.sibling.empty());
    if (says_what_is_wrong && !group[i].correct) {
      context.feedback = group[i].feedback;
    }
  }
  return contexts;
}

std::string WithoutThoughts(absl::string_view text) {
  constexpr absl::string_view kOpen = "<think>";
  constexpr absl::string_view kClose = "</think>";
  std::string left;
  while (true) {
    const size_t open = text.find(kOpen);
    const size_t close = open == absl::string_view::npos
                             ? open
                             : text.find(kClose, open + kOpen.size());
    if (close == absl::string_view::npos) break;
    absl::StrAppend(&left, text.substr(0, open));
    text =
        absl::StripLeadingAsciiWhitespace(text.substr(close + kClose.size()));
  }
  return absl::StrCat(left, text);
}

std::string VerdictOn(absl::string_view text) {
  const std::optional<std::string> boxed = ExtractBoxed(text);
  return boxed.has_value()
             ? absl::StrCat("The final result \\boxed{", *boxed, "} is wrong.")
             : "There is no final result in \\boxed{}.";
}

}  // namespace dapd
