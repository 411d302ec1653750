// Which answer of a step: a rollout, or a candidate for a reference's place.
#pragma once

#include <compare>
#include <cstdint>

namespace dapd {

struct AnswerPlace {
  int64_t sample = 0;   // its place in the batch
  int64_t attempt = 0;  // among the sample's answers (answer_rules.h)
  auto operator<=>(const AnswerPlace&) const = default;
};

}  // namespace dapd
