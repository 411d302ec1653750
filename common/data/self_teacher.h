// What SDPO's self-teacher (Huebotter et al., arXiv 2601.20802) reads beside
// the problem: of the answers to one problem in one step, its group, a right
// one that is not the one it scores, or what is wrong with that one, or both.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

struct TeacherContext {
  std::optional<std::string> sibling;  // a right answer's text
  std::string feedback;  // on the answer that is scored; empty: none

  bool empty() const { return !sibling.has_value() && feedback.empty(); }
  bool operator==(const TeacherContext&) const = default;
};

struct GradedAnswer {
  std::string text;
  bool correct = false;
  // The feedback on it (Prompts::Feedback); white space alone is none.
  std::string feedback;
};

// One for each answer of the group: its sibling is the first other answer that
// is right, without its thoughts, also if nothing else is left of it.
std::vector<TeacherContext> TeacherContexts(std::span<const GradedAnswer> group,
                                            FeedbackRule rule);

// Drops each "<think>...</think>" and the white space behind it, as Unicode
// defines it.
std::string WithoutThoughts(const std::string& text);

}  // namespace dapd
