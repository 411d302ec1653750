// What SDPO's self-teacher (Huebotter et al., arXiv 2601.20802) reads beside
// the problem: of the answers to one problem in one step, its group, a right
// one that is not the one it scores, or what is wrong with that one, or both.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/config/feedback_rule.h"

namespace dapd {

struct TeacherContext {
  std::string sibling;   // a right answer's text; empty: none
  std::string feedback;  // on the answer that is scored; empty: none

  bool empty() const { return sibling.empty() && feedback.empty(); }
  bool operator==(const TeacherContext&) const = default;
};

struct GradedAnswer {
  std::string text;
  bool correct = false;
  std::string feedback;  // what there is to say about it
};

// One for each answer of the group: its sibling is the first other answer that
// is right, without its thoughts; one of which nothing is left counts as none.
std::vector<TeacherContext> TeacherContexts(std::span<const GradedAnswer> group,
                                            FeedbackRule rule);

// Drops each "<think>...</think>" and the white space behind it.
std::string WithoutThoughts(absl::string_view text);

// What the grader (grade_answer.h) says about an answer that is not right,
// without the expected one: that its boxed result is wrong, or that it has
// none.
std::string VerdictOn(absl::string_view text);

}  // namespace dapd
