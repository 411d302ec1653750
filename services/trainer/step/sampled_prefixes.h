// SampledPrefixes: the prompts and the tokens so far of answers that are still
// sampled, as the rollout workers report them. The trainer passes them through
// its model ahead (common/objective/forward_ahead.h).
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

  // An answer to this prompt is being sampled from now on.
  void Begin(uint64_t id, std::vector<int32_t> prompt);
  // All tokens of the answer so far (OnTokens); they begin anew if another
  // worker took the task over. Ignored for an answer that is not being sampled.
  void Grow(uint64_t id, const std::vector<int32_t>& ids);
  // The answer is there, or will not come.
  void End(uint64_t id);
  void EndAll();

  // The prompt and the answer's tokens; empty for an answer that is not being
  // sampled.
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
