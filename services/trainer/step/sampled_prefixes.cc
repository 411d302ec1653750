#include "services/trainer/step/sampled_prefixes.h"

#include <utility>

namespace dapd {

void SampledPrefixes::Begin(uint64_t id, std::vector<int32_t> prompt) {
  MutexLock lock(&mutex_);
  const size_t tokens = prompt.size();
  prefixes_[id] = {std::move(prompt), tokens};
}

void SampledPrefixes::Grow(uint64_t id, const std::vector<int32_t>& ids) {
  MutexLock lock(&mutex_);
  const auto found = prefixes_.find(id);
  if (found == prefixes_.end()) return;
  Prefix& prefix = found->second;
  // A worker that took the task over begins anew, with the same tokens.
  const size_t known = prefix.ids.size() - prefix.prompt_tokens;
  if (ids.size() < known + stride_) return;
  prefix.ids.insert(
      prefix.ids.end(), ids.begin() + static_cast<int64_t>(known), ids.end());
}

void SampledPrefixes::End(uint64_t id) {
  MutexLock lock(&mutex_);
  prefixes_.erase(id);
}

void SampledPrefixes::EndAll() {
  MutexLock lock(&mutex_);
  prefixes_.clear();
}

std::vector<int32_t> SampledPrefixes::Of(uint64_t id) const {
  MutexLock lock(&mutex_);
  const auto found = prefixes_.find(id);
  if (found == prefixes_.end()) return {};
  return found->second.ids;
}

}  // namespace dapd
