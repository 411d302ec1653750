#include "common/collective/collective.h"

#include <utility>

#include "common/base/status_macros.h"

namespace dapd {

absl::Status SingleRank::Sum(absl::Span<float> /*values*/) {
  return absl::OkStatus();
}

absl::Status SingleRank::Broadcast(std::string* /*bytes*/) {
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SingleRank::Gather(std::string bytes) {
  return std::vector<std::string>{std::move(bytes)};
}

absl::StatusOr<bool> HoldsOnAllRanks(bool holds, Collective& ranks) {
  float missing = holds ? 0.0F : 1.0F;
  RETURN_IF_ERROR(ranks.Sum({&missing, 1}));
  return missing == 0.0F;
}

std::unique_ptr<Collective> MakeSingleRank() {
  return std::make_unique<SingleRank>();
}

RankSlice SliceOf(size_t rank, size_t size, size_t groups) {
  return {groups * rank / size, groups * (rank + 1) / size};
}

}  // namespace dapd
