// What the workers of both roles do with uploads: ServedWeights knows which
// weights are served, by set, and LoadOnComputeThread takes an upload to the
// thread that computes with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/terms/weight_set.h"

namespace dapd {

// Thread-safe.
class ServedWeights {
 public:
  // The base is always loaded, as version 0 without a digest.
  ServedPolicy Of(WeightSet set) const;
  // The sets that were loaded.
  std::map<WeightSet, ServedPolicy> Loaded() const;
  void Set(WeightSet set, ServedPolicy policy);
  // What `upload`, whose content is served already, is served as. From now on
  // that is under its key, if it has one: further uploads with this key need
  // not be sent. The base never has one. For the one thread that calls Set.
  ServedPolicy Keep(const AdapterUpload& upload);

  // FAILED_PRECONDITION, with both names, unless `set` is served in exactly
  // this version. Of the base there is only one.
  absl::Status Check(WeightSet set,
                     int64_t version,
                     const std::string& digest) const;

 private:
  mutable Mutex mutex_;
  std::map<WeightSet, ServedPolicy> served_ ABSL_GUARDED_BY(mutex_);
};

// Whether `upload` is what `served` is, so that it is only to be probed.
// NOT_FOUND if it has to be (AdapterUpload::is_served) and is not.
absl::StatusOr<bool> IsServedAlready(const ServedPolicy& served,
                                     const AdapterUpload& upload);

// What a worker did with an upload.
struct LoadResult {
  WeightSet set = WeightSet::kLive;
  ServedPolicy served;
  AppliedAdapter applied;
};

// Has the thread that empties `commands` call `apply` with the upload, and
// blocks until it has. CANCELLED, with the call still to come, once `cancelled`
// returns true; UNAVAILABLE if the queue is closed; else what `apply` returns.
absl::StatusOr<LoadResult> LoadOnComputeThread(
    AdapterUpload upload,
    BoundedQueue<std::function<void()>>& commands,
    std::function<absl::StatusOr<LoadResult>(const AdapterUpload&)> apply,
    const std::function<bool()>& cancelled);

}  // namespace dapd
