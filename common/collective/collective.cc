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

RankSlice SliceOf(size_t rank, size_t size, size_t groups) {
  return {groups * rank / size, groups * (rank + 1) / size};
}

}  // namespace dapd
