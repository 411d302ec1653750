#include "services/rollout/backend_sampler.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/weights/adapter.h"
#include "services/rollout/engine_sampler.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/fakes/random_model.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

// Is shared by the test and the backend.
struct Control {
  int failures = 0;  // of the next SetAdapter calls
  bool probe_fails = false;
};

// Computes nothing but probes, which give the adapter's rank, 0 for the base.
// After a failed load, half of the new adapter is in use.
class PackingBackend final : public DecodeBackend {
 public:
  PackingBackend(ModelConfig config, Control& control)
      : config_(std::move(config)), control_(control) {}

  const ModelConfig& config() const override { return config_; }
  int64_t num_slots() const override { return 1; }
  int64_t KvBytes(int64_t tokens) const override { return tokens; }
  int64_t DefaultKvBudget() const override { return 1 << 20; }
  void SetAdapter(std::shared_ptr<const Adapter> adapter) override {
    rank_ =
        adapter == nullptr ? 0.0F : static_cast<float>(adapter->config.rank);
    const bool fails = control_.failures > 0 && control_.failures-- > 0;
    TORCH_CHECK(!fails, "CUDA out of memory");
  }
  bool Start(int64_t, DecodeRequest) override { return true; }
  bool Reserve(int64_t, int64_t) override { return true; }
  void Stop(int64_t) override {}
  std::vector<DecodedToken> Step() override { return {}; }
  std::vector<float> ScoreTokens(const std::vector<int32_t>&) override {
    TORCH_CHECK(!control_.probe_fails, "CUDA out of memory");
    return {rank_};
  }

 private:
  const ModelConfig config_;
  Control& control_;
  float rank_ = 0.0F;
};

class BackendSamplerTest : public ::testing::Test {
 protected:
  BackendSamplerTest()
      : config_(MakeRandomModel("qwen3", 1, at::kFloat, 300)->config),
        sampler_(MakeBackendSampler(
            std::make_unique<PackingBackend>(config_, control_),
            at::kCPU,
            {})) {}

  AdapterUpload UploadOfRank(int64_t rank) const {
    const Adapter adapter =
        MakeFreshAdapter(config_, {.rank = rank, .alpha = 4}, 7, at::kCPU);
    AdapterUpload upload;
    upload.adapter =
        SerializeAdapter(adapter, "base", DigestKind::kSha256).value();
    upload.probe_ids = {1, 2};
    return upload;
  }
  std::vector<float> Probe() {
    const auto probed = sampler_->Probe({1, 2});
    EXPECT_TRUE(probed.ok()) << probed.status();
    return probed.ok() ? probed->probe_logprobs : std::vector<float>();
  }

  Control control_;
  const ModelConfig config_;
  const std::unique_ptr<Sampler> sampler_;
};

TEST_F(BackendSamplerTest, WhatWasServedBeforeIsServedAfterAFailedUpload) {
  ASSERT_TRUE(sampler_->Load(UploadOfRank(2)).ok());
  EXPECT_THAT(Probe(), ElementsAre(2));
  control_.failures = 1;
  EXPECT_TRUE(
      absl::IsResourceExhausted(sampler_->Load(UploadOfRank(3)).status()));
  EXPECT_THAT(Probe(), ElementsAre(2));
  control_.probe_fails = true;
  EXPECT_FALSE(sampler_->Load(UploadOfRank(3)).ok());
  control_.probe_fails = false;
  EXPECT_THAT(Probe(), ElementsAre(2));
  ASSERT_TRUE(sampler_->Load(UploadOfRank(3)).ok());
  EXPECT_THAT(Probe(), ElementsAre(3));
}

TEST_F(BackendSamplerTest, NothingIsSampledBeforeItIsServedAgain) {
  ASSERT_TRUE(sampler_->Load(UploadOfRank(2)).ok());
  // Loading the new adapter fails for memory, and loading the old one fails
  // twice.
  control_.failures = 3;
  EXPECT_FALSE(sampler_->Load(UploadOfRank(3)).ok());
  DecodeRequest request;
  request.prompt_ids = {1};
  request.sampling.max_new_tokens = 1;
  EXPECT_TRUE(absl::IsResourceExhausted(sampler_->Submit(1, request)));
  EXPECT_TRUE(sampler_->Submit(2, request).ok());
  EXPECT_THAT(Probe(), ElementsAre(2));
}

// A GPU's decoder has at most 128 slots, whatever rollout.slots says.
TEST(OfferTest, AWorkerTakesAsManyRequestsAsItsSamplerHasSlots) {
  FakeSamplerControl control;
  control.slots = 3;
  const LoadedSampler loaded =
      Offer({.service = "rollout"}, std::make_unique<FakeSampler>(&control));
  EXPECT_EQ(loaded.description.service, "rollout");
  EXPECT_EQ(loaded.description.max_in_flight, 3);
  EXPECT_EQ(loaded.sampler->num_free(), 3);
}

}  // namespace
}  // namespace dapd
