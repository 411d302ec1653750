// When SDPO's self-teacher (common/data/self_teacher.h) reads what is wrong
// with an answer: objective.sdpo.feedback.
#pragma once

#include <string>

namespace dapd {

enum class FeedbackRule {
  kNever,
  kWithoutSibling,  // only where there is no sibling to show
  kAlways,
};

// "never", "without_sibling" or "always", as the configuration checked it.
FeedbackRule ParseFeedbackRule(const std::string& name);

}  // namespace dapd
