#include "common/collective/collective.h"

#include <utility>

namespace dapd {
namespace {

class SingleRank : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::Status Sum(absl::Span<float> /*values*/) override {
    return absl::OkStatus();
  }
  absl::Status Broadcast(std::string* /*bytes*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> Gather(std::string bytes) override {
    return std::vector<std::string>{std::move(bytes)};
  }
  void Cancel() override {}
};

}  // namespace

std::unique_ptr<Collective> MakeSingleRank() {
  return std::make_unique<SingleRank>();
}

RankSlice SliceOf(const Collective& collective, size_t groups) {
  const auto rank = static_cast<size_t>(collective.rank());
  const auto size = static_cast<size_t>(collective.size());
  return {groups * rank / size, groups * (rank + 1) / size};
}

}  // namespace dapd
