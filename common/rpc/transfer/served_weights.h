// Uploads in the workers of both roles: ServedWeights knows which weights are
// served, by set, and LoadOnComputeThread passes an upload to the thread that
// computes with them.
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
  // Returns the sets that an upload has become.
  std::map<WeightSet, ServedPolicy> Loaded() const;
  void Set(WeightSet set, ServedPolicy policy);
  // Returns the name of `upload`, whose content is served already. From now on
  // it is served under its key, if it has one: further uploads with this key
  // need not be sent. The base never has a key. Only the thread that calls Set
  // may call this.
  ServedPolicy Keep(const AdapterUpload& upload);

  // Returns FAILED_PRECONDITION, with both names, unless `set` is served in
  // exactly this version. The base has only one version.
  absl::Status Check(WeightSet set,
                     int64_t version,
                     const std::string& digest) const;

 private:
  mutable Mutex mutex_;
  std::map<WeightSet, ServedPolicy> served_ ABSL_GUARDED_BY(mutex_);
};

// Returns whether `upload` has the content of `served`, so that it only needs a
// probe. Returns NOT_FOUND if it must have (AdapterUpload::is_served) and has
// not.
absl::StatusOr<bool> IsServedAlready(const ServedPolicy& served,
                                     const AdapterUpload& upload);

// A worker's treatment of an upload.
struct LoadResult {
  WeightSet set = WeightSet::kLive;
  ServedPolicy served;
  AppliedAdapter applied;
};

// Makes the thread that empties `commands` call `apply` with the upload, and
// blocks until it has. Returns the result of `apply`; CANCELLED once
// `cancelled` returns true, although `apply` will still be called; UNAVAILABLE
// if the queue is closed.
absl::StatusOr<LoadResult> LoadOnComputeThread(
    AdapterUpload upload,
    BoundedQueue<std::function<void()>>& commands,
    std::function<absl::StatusOr<LoadResult>(const AdapterUpload&)> apply,
    const std::function<bool()>& cancelled);

}  // namespace dapd
