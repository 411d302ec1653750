// Input: WorkerAnswers as text: a worker's description of itself and of an
// adapter that it took.
// The trainer accepts it only if it is what the run needs.
#include <cmath>

#include "common/base/check.h"
#include "services/trainer/workers/worker_handshake.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/message_input.h"
#include "tests/fuzz/streams.pb.h"

namespace dapd {
namespace {

const ExpectedWorker& Expected() {
  static const auto& expected = *new ExpectedWorker{"layout", "float32", 32, 8};
  return expected;
}

void Run(const fuzz::WorkerAnswers& answers) {
  const v1::DescribeResponse& worker = answers.description();
  const auto in_flight = CheckDescription(worker, "rollout", Expected());
  if (in_flight.ok()) {
    Check(*in_flight >= 1 && worker.layout_digest() == "layout" &&
              worker.vocab_size() == 32,
          "an accepted worker is what the run needs");
  }
  PolicyUpdate update;
  update.version = 3;
  update.adapter.digest = "digest";
  update.probe_ids = {1, 2, 3};
  update.probe_logprobs = {-1.0F, -2.0F};
  const v1::LoadAdapterResponse& taken = answers.acknowledgement();
  if (!CheckAcknowledgement(taken, WeightSet::kLive, update).ok()) return;
  Check(taken.adapter().digest() == "digest" &&
            taken.adapter().policy_version() == 3,
        "an accepted acknowledgement is of the weights that were sent");
  for (int i = 0; i < 2; ++i) {
    Check(std::abs(taken.probe_logprobs(i) -
                   update.probe_logprobs[static_cast<size_t>(i)]) < 0.01F,
          "an accepted probe is near the trainer's");
  }
}

}  // namespace
}  // namespace dapd

DAPD_FUZZ_MESSAGES(dapd::fuzz::WorkerAnswers, dapd::Run)
