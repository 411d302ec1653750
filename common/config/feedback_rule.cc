#include "common/config/feedback_rule.h"

namespace dapd {

FeedbackRule ParseFeedbackRule(const std::string& name) {
  if (name == "always") return FeedbackRule::kAlways;
  return name == "without_sibling" ? FeedbackRule::kWithoutSibling
                                   : FeedbackRule::kNever;
}

}  // namespace dapd
