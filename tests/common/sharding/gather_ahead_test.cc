// Tests gathering on a device that the host simulates: one stream, how far
// ahead, how much memory, how many launches.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/mutex.h"
#include "common/base/status_error.h"
#include "common/collective/collective.h"
#include "common/sharding/sharded_layers.h"
#include "tests/fakes/machine_clock.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/random_shards.h"
#include "tests/fakes/simulated_stream.h"
#include "tests/fakes/small_memory.h"
#include "tests/fakes/thread_ranks.h"

namespace dapd {
namespace {

// Describes what a gather found when it began.
struct Gather {
  bool on_side_stream = false;
  int64_t held = 0;   // SimulatedStream::Counts
  int64_t bytes = 0;  // of gathered weights that are still in memory
};

// Is a group of one rank whose part is the whole, or of two ranks with equal
// parts.
class SimulatedGroup final : public DeviceGroup {
 public:
  explicit SimulatedGroup(const SimulatedStream& stream) : stream_(stream) {}

  void PlayTwoRanks() { size_ = 2; }

  absl::Status Sum(at::Tensor& /*values*/) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> parts) override {
    {
      MutexLock lock(&mutex_);
      gathers_.push_back(
          {SimulatedStream::IsEntered(), stream_.counts().held, bytes_});
    }
    std::vector<at::Tensor> all;
    for (const at::Tensor& part : parts) {
      const auto size = static_cast<int64_t>(part.nbytes());
      bytes_ += size;
      auto copy = std::make_shared<at::Tensor>(part.clone());
      at::Tensor one = at::from_blob(
          copy->data_ptr(),
          copy->sizes(),
          [this, copy, size](void*) { bytes_ -= size; },
          part.options());
      all.push_back(
          one.unsqueeze(0).expand({size_, part.size(0), part.size(1)}));
    }
    return all;
  }
  absl::Status Broadcast(std::span<const at::Tensor> /*tensors*/) override {
    return absl::UnimplementedError("layers are gathered");
  }
  std::vector<Gather> gathers() const {
    MutexLock lock(&mutex_);
    return gathers_;
  }

 private:
  const SimulatedStream& stream_;
  int64_t size_ = 1;
  std::atomic<int64_t> bytes_ = 0;
  mutable Mutex mutex_;
  std::vector<Gather> gathers_ ABSL_GUARDED_BY(mutex_);
};

// Has no memory for some gathers, and says so before the ranks begin them.
class RefusingGroup final : public DeviceGroup {
 public:
  explicit RefusingGroup(DeviceGroup& group) : group_(group) {}
  // Refuses the gather after `after` other gathers, `times` times.
  void Refuse(int64_t after, int64_t times) {
    first_ = asked_ + after;
    end_ = first_ + times;
  }

  absl::Status Sum(at::Tensor& values) override { return group_.Sum(values); }
  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> parts) override {
    const int64_t place = asked_++;
    TORCH_CHECK_WITH(
        OutOfMemoryError, place < first_ || place >= end_, "no room");
    return group_.AllGather(parts);
  }
  absl::Status Broadcast(std::span<const at::Tensor> tensors) override {
    return group_.Broadcast(tensors);
  }

 private:
  DeviceGroup& group_;
  int64_t asked_ = 0;  // walks come one at a time
  int64_t first_ = 0;
  int64_t end_ = 0;
};

// Is a single rank; somebody sets the machine's clock during its sums.
class ClockSettingRank final : public SingleRank {
 public:
  absl::Status Sum(absl::Span<float> /*values*/) override {
    clock_.Set(absl::Hours(1));
    return absl::OkStatus();
  }

 private:
  MachineClock clock_;
};

class GatherAheadTest : public testing::Test {
 protected:
  GatherAheadTest() {
    auto side = std::make_unique<SimulatedStream>();
    side_ = side.get();
    group_ = std::make_unique<SimulatedGroup>(*side_);
    refusing_ = std::make_unique<RefusingGroup>(*group_);
    layers_ = std::make_unique<ShardedLayers>(
        ShardModel(*whole_, {0, 1}), *collective_, *refusing_, std::move(side));
    for (const at::Tensor& weight : whole_->layers[0].weight) {
      layer_bytes_ += static_cast<int64_t>(weight.nbytes());
    }
  }

  // Makes a pass that computes with each layer before it asks for the next
  // layer.
  void Compute(LayerWalk& walk, const std::vector<int64_t>& order) {
    for (const int64_t index : order) {
      const LayerWeights layer = walk.Next(index);
      EXPECT_TRUE(
          at::equal(layer.weight[0],
                    whole_->layers[static_cast<size_t>(index)].weight[0]));
      side_->Compute();
    }
  }

  // The model is long enough for a gather to run far ahead.
  static std::shared_ptr<const ModelWeights> SixLayers() {
    auto model = std::make_shared<ModelWeights>(*MakeRandomModel("qwen3"));
    while (model->layers.size() < 6) model->layers.push_back(model->layers[0]);
    model->config.num_layers = 6;
    return model;
  }

  const std::shared_ptr<const ModelWeights> whole_ = SixLayers();
  const int64_t num_layers_ = whole_->config.num_layers;
  const std::unique_ptr<Collective> collective_ = MakeSingleRank();
  int64_t layer_bytes_ = 0;
  std::unique_ptr<SimulatedGroup> group_;
  std::unique_ptr<RefusingGroup> refusing_;
  std::unique_ptr<ShardedLayers> layers_;  // destroyed first: uses group_
  SimulatedStream* side_ = nullptr;
};

TEST_F(GatherAheadTest, ALayerIsGatheredBehindWhatReadsTheOneTwoBefore) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < num_layers_; ++i) order.push_back(i);
  for (int64_t i = num_layers_ - 1; i >= 0; --i) order.push_back(i);
  // A second walk comes in the same order; both share one stream.
  for (int walk = 0; walk < 2; ++walk) {
    const auto pass = layers_->Begin(WalkKind::kForwardAndBackward);
    Compute(*pass, order);
  }
  const std::vector<Gather> gathers = group_->gathers();
  const int64_t of_a_walk = 2 * num_layers_ - 1;  // the last layer serves twice
  ASSERT_EQ(static_cast<int64_t>(gathers.size()), 2 * of_a_walk)
      << "one launch a layer";
  for (int64_t i = 0; i < 2 * of_a_walk; ++i) {
    const Gather& gather = gathers[static_cast<size_t>(i)];
    EXPECT_TRUE(gather.on_side_stream) << i;
    EXPECT_LE(gather.bytes, layer_bytes_) << "beside the one that is computed";
    // `before` counts the layers computed before this place in the walk: the
    // last layer's two uses are two pieces of work.
    const int64_t place = i % of_a_walk;
    const int64_t before = i / of_a_walk * 2 * num_layers_;
    if (place == 0) {
      EXPECT_GE(gather.held, before) << "behind the walk before";
    } else if (place >= 2) {
      EXPECT_GE(gather.held, before + place - 1 + (place > num_layers_ ? 1 : 0))
          << i;
    }
  }
  // Each walk has a thread and an end.
  EXPECT_EQ(side_->counts().entries, 4);
  EXPECT_EQ(side_->counts().waits, 0) << "no host thread waits for a stream";
}

TEST_F(GatherAheadTest, APassThatEndsEarlyLeavesNothingInMemory) {
  {
    const auto pass = layers_->Begin(WalkKind::kForward);
    Compute(*pass, {0});
  }
  ASSERT_EQ(static_cast<int64_t>(group_->gathers().size()), num_layers_);
  const auto pass = layers_->Begin(WalkKind::kForward);
  Compute(*pass, {0});
  EXPECT_EQ(group_->gathers()[static_cast<size_t>(num_layers_)].bytes, 0);
  EXPECT_GE(group_->gathers()[static_cast<size_t>(num_layers_)].held, 1)
      << "what the first pass read";
}

// The other ranks wait for the layer that finds no memory beside the pass.
TEST_F(GatherAheadTest, APassWithoutMemoryForItsNextLayerEndsAndMakesRoom) {
  refusing_->Refuse(2, 1);
  {
    const auto pass = layers_->Begin(WalkKind::kForward);
    Compute(*pass, {0, 1});
    EXPECT_THROW(pass->Next(2), c10::OutOfMemoryError);
  }
  const std::vector<Gather> gathers = group_->gathers();
  ASSERT_EQ(static_cast<int64_t>(gathers.size()), num_layers_)
      << "none is left out";
  EXPECT_EQ(gathers[2].bytes, 0) << "what the pass had is gone";
  const auto pass = layers_->Begin(WalkKind::kForward);
  Compute(*pass, {0, 1, 2, 3, 4, 5});
}

// The layer is gathered; only the copy of a weight that is split by inputs
// finds no memory.
TEST_F(GatherAheadTest, ALayerThatWasGatheredIsNotGatheredAgain) {
  group_->PlayTwoRanks();
  size_t largest = 0;
  for (const at::Tensor& weight : whole_->layers[0].weight) {
    largest = std::max(largest, weight.nbytes());
  }
  {
    const SmallMemory memory(largest);
    const auto pass = layers_->Begin(WalkKind::kForward);
    EXPECT_THROW(pass->Next(0), c10::OutOfMemoryError);
  }
  EXPECT_EQ(static_cast<int64_t>(group_->gathers().size()), num_layers_);
  EXPECT_NE(layers_->Begin(WalkKind::kForward), nullptr);
}

TEST_F(GatherAheadTest, ARankThatIsOutOfStepBeginsNothingMore) {
  refusing_->Refuse(1, 2);
  {
    const auto pass = layers_->Begin(WalkKind::kForward);
    Compute(*pass, {0});
    EXPECT_THROW(pass->Next(1), c10::OutOfMemoryError);
  }
  const absl::Status status = layers_->ServeOthers();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("lower trainer.pack_tokens"),
            absl::string_view::npos)
      << status;
  EXPECT_THROW(layers_->Begin(WalkKind::kForward), StatusError);
}

TEST_F(GatherAheadTest,
       ARankThatLacksMemoryMakesShorterPassesInStepWithOthers) {
  RunThreadRanks(2, [this](Collective& collective) {
    const auto shard = ShardModel(*whole_, {collective.rank(), 2});
    const auto devices = DeviceGroup::Join(collective, at::kCPU, 1).value();
    RefusingGroup group(*devices);
    ShardedLayers layers(
        shard, collective, group, std::make_unique<SimulatedStream>());
    const auto run = [&] {
      const auto pass = layers.Begin(WalkKind::kForward);
      for (int64_t i = 0; i < num_layers_; ++i) {
        EXPECT_TRUE(
            at::equal(pass->Next(i).weight[6],
                      whole_->layers[static_cast<size_t>(i)].weight[6]));
      }
    };
    if (collective.rank() == 1) {
      group.Refuse(3, 1);
      EXPECT_THROW(run(), c10::OutOfMemoryError);
      run();
    }
    run();
    EXPECT_TRUE(layers.ServeOthers().ok());
  });
}

TEST_F(GatherAheadTest, AClockThatIsSetIsNoTimeThatWasWaited) {
  ClockSettingRank rank;
  ShardedLayers layers(ShardModel(*whole_, {0, 1}), rank, *group_, nullptr);
  layers.Begin(WalkKind::kForward);
  EXPECT_GT(layers.wait_seconds(), 0);
  EXPECT_LT(layers.wait_seconds(), 1800);
}

}  // namespace
}  // namespace dapd
