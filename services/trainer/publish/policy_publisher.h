// PolicyPublisher: gives the rollout workers their policy, and the teachers
// their sets of weights. batch_trainer.h decides when the rollout workers
// change over; the teachers always get the policy's current version of each set
// that the objective reads.
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
  DigestKind digest_kind;            // of every push
  // Names the updates of all ranks in this attempt (PolicyUpdate::key); empty
  // with one rank.
  std::string attempt_key;
  RolloutClient& rollouts;
  TeacherClient& teachers;
  // Gets the version that the rollout workers serve from now on.
  std::function<void(int64_t version)> on_served;
};

// Not thread-safe: owned by the compute thread.
class PolicyPublisher {
 public:
  explicit PolicyPublisher(PolicyPublisherParts parts)
      : parts_(std::move(parts)),
        side_(MakeSideStream(parts_.weights.device())) {}

  // Gives the teachers their sets of weights, and the rollout workers the
  // policy that samples the next step: the previous policy, if it is kept, else
  // the live policy. `probe_ids`: at least 2 tokens.
  absl::Status Start(std::vector<int32_t> probe_ids);

  // Gives the teachers the sets that have a new version. The bytes of the live
  // set come from SetLive's update.
  absl::Status PublishWeights();

  // Returns the writer for the policy of the next optimizer step. The publisher
  // must outlive it.
  absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> WriteNext() const;
  // Makes `update` the live policy, once its step is done and it is written.
  void SetLive(std::shared_ptr<const PolicyUpdate> update) {
    live_ = std::move(update);
  }

  // Lets the rollout workers serve `update` from now on.
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
