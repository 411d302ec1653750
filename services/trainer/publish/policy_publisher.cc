#include "services/trainer/publish/policy_publisher.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/failpoint.h"
#include "common/base/status_macros.h"
#include "services/trainer/publish/make_policy_update.h"

namespace dapd {

absl::Status PolicyPublisher::Start(std::vector<int32_t> probe_ids) {
  probe_ids_ = std::move(probe_ids);
  const Policy& policy = parts_.policy;
  ASSIGN_OR_RETURN(live_, Pack(&policy.live(), policy.version()));
  RETURN_IF_ERROR(PublishWeights());
  DAPD_FAILPOINT("publish.after_first_weights");
  auto first = live_;
  if (policy.previous() != nullptr) {
    ASSIGN_OR_RETURN(first, Pack(policy.previous(), policy.version() - 1));
  }
  Serve(std::move(first));
  return absl::OkStatus();
}

absl::Status PolicyPublisher::PublishWeights() {
  const auto adapters = parts_.policy.WeightSets();
  bool changed = false;
  for (const WeightSet set : parts_.teacher_sets) {
    std::shared_ptr<const PolicyUpdate>& update = teacher_updates_[set];
    const int64_t version = parts_.policy.VersionOf(set);
    if (update != nullptr && update->version == version) continue;
    if (set == WeightSet::kLive) {
      update = live_;
    } else {
      ASSIGN_OR_RETURN(update, Pack(adapters.at(set), version));
    }
    changed = true;
  }
  if (!changed) return absl::OkStatus();
  DAPD_FAILPOINT("publish.before_weights");
  parts_.teachers.SetWeights(teacher_updates_);
  DAPD_FAILPOINT("publish.after_weights");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> PolicyPublisher::WriteNext()
    const {
  return PolicyUpdateWriter::Start(parts_.policy.live(),
                                   parts_.policy.version() + 1,
                                   KeyOf(parts_.policy.version() + 1),
                                   probe_ids_,
                                   parts_.digest_kind,
                                   side_.get());
}

void PolicyPublisher::Serve(std::shared_ptr<const PolicyUpdate> update) {
  if (update == served_) return;
  served_ = std::move(update);
  parts_.rollouts.SetPolicy(served_);
  parts_.on_served(served_->version);
}

// A version suffices, because a worker keeps keys by set, and a set has one
// adapter for each version.
std::string PolicyPublisher::KeyOf(int64_t version) const {
  if (parts_.attempt_key.empty()) return "";
  return absl::StrCat(parts_.attempt_key, "/", version);
}

absl::StatusOr<std::shared_ptr<const PolicyUpdate>> PolicyPublisher::Pack(
    const Adapter* adapter, int64_t version) const {
  return MakePolicyUpdate(parts_.weights,
                          adapter,
                          version,
                          KeyOf(version),
                          probe_ids_,
                          parts_.digest_kind);
}

}  // namespace dapd
