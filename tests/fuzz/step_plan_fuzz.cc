// Input: messages of one trainer rank to another: a plan, and answers.
// Whatever is read can be sent on and then has the same content.
#include <string>

#include "common/base/check.h"
#include "services/trainer/step/rank_messages.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

bool IsSame(const RolloutResult& a, const RolloutResult& b) {
  return a.ids == b.ids && a.logprobs == b.logprobs &&
         a.finish_reason == b.finish_reason &&
         a.policy_version == b.policy_version &&
         a.adapter_digest == b.adapter_digest;
}

void Run(const std::string& bytes) {
  if (const auto plan = ParsePlan(bytes); plan.ok()) {
    const auto again = ParsePlan(SerializePlan(*plan));
    Check(again.ok() && again->step == plan->step &&
              again->recalled.size() == plan->recalled.size(),
          "a plan can be sent on");
    for (const auto& [place, result] : plan->recalled) {
      Check(IsSame(again->recalled.at(place), result),
            "a recalled answer stays what it is");
    }
  }
  if (const auto answers = ParseAnswers(bytes); answers.ok()) {
    const auto again = ParseAnswers(SerializeAnswers(*answers));
    Check(again.ok() && again->size() == answers->size(),
          "answers can be sent on");
    for (const auto& [place, result] : *answers) {
      Check(again->contains(place) && IsSame(again->at(place), result),
            "an answer stays what it is");
    }
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size).Rest());
  return 0;
}
