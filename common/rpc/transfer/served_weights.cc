#include "common/rpc/transfer/served_weights.h"

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

constexpr std::chrono::milliseconds kCancelPoll(100);

}  // namespace

ServedPolicy ServedWeights::Of(WeightSet set) const {
  MutexLock lock(&mutex_);
  const auto found = served_.find(set);
  if (found != served_.end()) return found->second;
  return {.loaded = set == WeightSet::kBase};
}

std::map<WeightSet, ServedPolicy> ServedWeights::Loaded() const {
  MutexLock lock(&mutex_);
  return served_;
}

void ServedWeights::Set(WeightSet set, ServedPolicy policy) {
  MutexLock lock(&mutex_);
  served_[set] = std::move(policy);
}

ServedPolicy ServedWeights::Keep(const AdapterUpload& upload) {
  ServedPolicy policy = Of(upload.set);
  if (upload.key.empty() || upload.set == WeightSet::kBase) return policy;
  policy.key = upload.key;
  Set(upload.set, policy);
  return policy;
}

absl::Status ServedWeights::Check(WeightSet set,
                                  int64_t version,
                                  const std::string& digest) const {
  if (set == WeightSet::kBase) return absl::OkStatus();
  const ServedPolicy policy = Of(set);
  if (!policy.loaded) {
    return absl::FailedPreconditionError(
        absl::StrCat("no ",
                     NameOf(set),
                     " adapter has been loaded yet: call LoadAdapter first"));
  }
  if (version != policy.version || digest != policy.digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("the request is for the ",
                     NameOf(set),
                     " adapter of ",
                     PolicyName(version, digest),
                     ", this worker serves the adapter of ",
                     PolicyName(policy.version, policy.digest)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> IsServedAlready(const ServedPolicy& served,
                                     const AdapterUpload& upload) {
  if (!upload.is_served) {
    return served.loaded && served.version == upload.version &&
           served.digest == upload.adapter.digest;
  }
  if (served.loaded && served.key == upload.key) return true;
  return absl::NotFoundError(
      "the content of another upload with this key is no longer served");
}

absl::StatusOr<LoadResult> LoadOnComputeThread(
    AdapterUpload upload,
    BoundedQueue<std::function<void()>>& commands,
    std::function<absl::StatusOr<LoadResult>(const AdapterUpload&)> apply,
    const std::function<bool()>& cancelled) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<LoadResult>>>();
  auto shared = std::make_shared<const AdapterUpload>(std::move(upload));
  std::future<absl::StatusOr<LoadResult>> result = promise->get_future();
  if (!commands.Push([promise, shared, apply = std::move(apply)] {
        promise->set_value(apply(*shared));
      })) {
    return absl::UnavailableError("this worker is shutting down");
  }
  while (result.wait_for(kCancelPoll) != std::future_status::ready) {
    if (cancelled()) return absl::CancelledError("the client has disconnected");
  }
  return result.get();
}

}  // namespace dapd
