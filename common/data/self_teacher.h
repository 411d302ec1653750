// Builds the context that SDPO's self-teacher (Huebotter et al., arXiv
// 2601.20802) reads besides the problem. A group holds the answers to one
// problem in one step. The context of an answer has another right answer of its
// group, or feedback on the answer itself, or both.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

struct TeacherContext {
  std::optional<std::string> sibling;  // a right answer's text
  std::string feedback;  // on the answer that is scored; may be empty

  bool empty() const { return !sibling.has_value() && feedback.empty(); }
  bool operator==(const TeacherContext&) const = default;
};

struct GradedAnswer {
  std::string text;
  bool correct = false;
  // Feedback on the answer (Prompts::Feedback); white space alone counts as
  // empty.
  std::string feedback;
};

// Returns a context for each answer of the group. Its sibling is the first
// other right answer without its thoughts, even if nothing else is left of that
// answer.
std::vector<TeacherContext> TeacherContexts(std::span<const GradedAnswer> group,
                                            FeedbackRule rule);

// Drops each "<think>...</think>" and the Unicode white space behind it.
std::string WithoutThoughts(const std::string& text);

}  // namespace dapd
