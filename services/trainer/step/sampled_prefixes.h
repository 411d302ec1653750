// What is known of the answers that are still sampled: the prompt and the
// tokens so far, as the rollout workers tell them. The trainer passes them
// through its model ahead (common/objective/forward_ahead.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/base/mutex.h"

namespace dapd {

// Thread-safe. Answers are named by their rollout tasks.
class SampledPrefixes {
 public:
  // A prefix grows by `stride` tokens or more at a time.
  explicit SampledPrefixes(int64_t stride)
      : stride_(static_cast<size_t>(stride)) {}

  // An answer to this prompt is sampled from now on.
  void Begin(uint64_t id, std::vector<int32_t> prompt);
  // All tokens of the answer so far (OnTokens); again from the start if another
  // worker took the task over. Nothing happens for one that is not sampled.
  void Grow(uint64_t id, const std::vector<int32_t>& ids);
  // It is there, or will not come.
  void End(uint64_t id);
  void EndAll();

  // The prompt and the answer's tokens; nothing for one that is not sampled.
  std::vector<int32_t> Of(uint64_t id) const;

 private:
  struct Prefix {
    std::vector<int32_t> ids;
    size_t prompt_tokens = 0;
  };

  const size_t stride_;
  mutable Mutex mutex_;
  std::map<uint64_t, Prefix> prefixes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
