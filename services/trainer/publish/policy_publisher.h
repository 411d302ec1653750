// PolicyPublisher: which policy the rollout workers serve, and which sets of
// weights the teachers. When the rollout workers change over is
// batch_trainer.h's decision; the teachers get each set that the objective
// reads as the policy has it now.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/model/weights/weights.h"
#include "common/rpc/transfer/policy_update.h"
#include "common/tensor/side_stream.h"
#include "common/training/policy.h"
#include "services/trainer/publish/policy_update_writer.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

// All referenced objects must outlive the publisher.
struct PolicyPublisherParts {
  const ModelWeights& weights;
  const Policy& policy;
  std::set<WeightSet> teacher_sets;  // that the objective reads
  DigestKind digest_kind;            // of all that is pushed
  // Of all ranks' updates in this attempt, and of no others'; empty where there
  // is one rank (PolicyUpdate::key).
  std::string attempt_key;
  RolloutClient& rollouts;
  TeacherClient& teachers;
  // The rollout workers are to serve this policy from now on.
  std::function<void(int64_t version)> on_served;
};

// Not thread-safe: owned by the compute thread.
class PolicyPublisher {
 public:
  explicit PolicyPublisher(PolicyPublisherParts parts)
      : parts_(std::move(parts)),
        side_(MakeSideStream(parts_.weights.device())) {}

  // Gives the teachers their sets of weights, and the rollout workers the
  // policy that samples the next step: the one before the live one, where that
  // is kept. `probe_ids`: at least 2 tokens.
  absl::Status Start(std::vector<int32_t> probe_ids);

  // The teachers get those of their sets that have another version now. The
  // live one is what SetLive was given, the same bytes.
  absl::Status PublishWeights();

  // For the policy that the next optimizer step leads to. The publisher must
  // outlive it.
  absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> WriteNext() const;
  // That step is done, and its update written.
  void SetLive(std::shared_ptr<const PolicyUpdate> update) {
    live_ = std::move(update);
  }

  // The rollout workers serve `update` from now on.
  void Serve(std::shared_ptr<const PolicyUpdate> update);

  const std::shared_ptr<const PolicyUpdate>& live() const { return live_; }
  const std::shared_ptr<const PolicyUpdate>& served() const { return served_; }

 private:
  std::string KeyOf(int64_t version) const;
  absl::StatusOr<std::shared_ptr<const PolicyUpdate>> Pack(
      const Adapter* adapter, int64_t version) const;

  PolicyPublisherParts parts_;
  const std::unique_ptr<SideStream> side_;  // of a GPU, for copies
  std::vector<int32_t> probe_ids_;
  std::shared_ptr<const PolicyUpdate> live_;
  std::shared_ptr<const PolicyUpdate> served_;  // by the rollout workers
  PolicyUpdates teacher_updates_;
};

}  // namespace dapd
