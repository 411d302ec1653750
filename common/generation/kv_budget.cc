#include "common/generation/kv_budget.h"

namespace dapd {

bool KvBudget::Raise(uint64_t holder, int64_t bytes) {
  const int64_t more = bytes - held_by(holder);
  if (more <= 0) return true;
  if (!HasRoomFor(more)) return false;
  held_[holder] += more;
  bytes_ += more;
  return true;
}

void KvBudget::Release(uint64_t holder) {
  bytes_ -= held_by(holder);
  held_.erase(holder);
}

int64_t KvBudget::held_by(uint64_t holder) const {
  const auto found = held_.find(holder);
  return found == held_.end() ? 0 : found->second;
}

}  // namespace dapd
