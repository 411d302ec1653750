// Tests a teacher on a GPU that the host simulates: the work that a request
// causes there, and that its bits do not depend on other requests in the pass.

#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/weights/adapter.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/model_scorer.h"
#include "tests/fakes/relative_error.h"
#include "tests/fakes/torch_device/device_model.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {
namespace {

using Hidden = std::map<ViewName, at::Tensor>;

class DeviceScorerTest : public ::testing::Test {
 protected:
  void SetUp() override { Restart(); }

  void Restart() {
    scorer_ = MakeModelScorer(weights_,
                              {.chunk_tokens = 16,
                               .pass_tokens = 64,
                               .has_fixed_rows = true,
                               .most_together = 3},
                              int64_t{1} << 30);
  }

  static ScoreInput MakeInput(int32_t start) {
    ScoreInput input;
    input.views = {
        {ViewName::kNoneRollout, {RandomModelIds(40, start), 20, 20}},
        {ViewName::kCrossRollout, {RandomModelIds(55, start + 3), 35, 20}}};
    return input;
  }

  std::vector<Hidden> Score(const std::vector<ScoreInput>& inputs) {
    std::vector<Hidden> got(inputs.size());
    std::vector<ScoreJob> jobs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      jobs.push_back({&inputs[i], [&got, i](ViewScores scores) {
                        got[i][scores.view] =
                            ToTorch(scores.tensors.front().second).clone();
                        return true;
                      }});
    }
    for (const auto& outcome : scorer_->ScoreTogether(jobs)) {
      EXPECT_TRUE(outcome.ok()) << outcome.status();
    }
    return got;
  }

  const std::shared_ptr<const ModelWeights> weights_ =
      OnSimulatedDevice(*MakeSmallModel(at::kBFloat16));
  std::unique_ptr<Scorer> scorer_;
};

TEST_F(DeviceScorerTest, APassIsOneWaitAndOneAttentionALayer) {
  const std::vector<ScoreInput> inputs = {
      MakeInput(1), MakeInput(2), MakeInput(9)};
  ResetWorkOfDevice();
  Score(inputs);
  // Three requests of 39 and 54 tokens take five passes of 64 rows.
  const DeviceWork& work = WorkOfDevice();
  EXPECT_EQ(work.Launches("aten::_flash_attention_forward"), 5 * 2);
  EXPECT_LE(work.waits, 5);
  EXPECT_EQ(work.to_device, 5 * 2);
  EXPECT_EQ(work.to_host, 6);
  EXPECT_EQ(work.pageable_copies, 0);
}

TEST_F(DeviceScorerTest, NeitherNeighboursNorStreamingChangeABit) {
  std::vector<ScoreInput> inputs = {MakeInput(1), MakeInput(2), MakeInput(9)};
  std::vector<Hidden> alone;
  for (const ScoreInput& input : inputs) {
    Restart();
    alone.push_back(Score({input}).front());
  }
  for (const bool is_ahead : {false, true}) {
    Restart();
    std::vector<HeldPrefix> held(3);
    if (is_ahead) {
      std::vector<AheadSequence> sequences;
      for (size_t i = 0; i < 3; ++i) {
        sequences.push_back(
            {WeightSet::kBase,
             &inputs[i].views.at(ViewName::kCrossRollout).input_ids,
             &held[i]});
      }
      EXPECT_EQ(scorer_->Advance(sequences).value(), 64);
    }
    const std::vector<Hidden> together = Score(inputs);
    for (size_t i = 0; i < 3; ++i) {
      for (const auto& [view, hidden] : alone[i]) {
        EXPECT_TRUE(at::equal(hidden, together[i].at(view)));
      }
    }
  }
}

TEST_F(DeviceScorerTest, EveryPayloadIsCopiedWithoutAWaitOfItsOwn) {
  for (const Payload payload :
       {Payload::kHiddenStates, Payload::kLogits, Payload::kTopK}) {
    ScoreInput input = MakeInput(4);
    input.payload = payload;
    input.top_k = 5;
    Restart();
    ResetWorkOfDevice();
    Score({input});
    EXPECT_LE(WorkOfDevice().waits, 2);  // two passes
    EXPECT_EQ(WorkOfDevice().pageable_copies, 0);
  }
}

// Together the requests do not fit; one by one they do.
TEST_F(DeviceScorerTest, ARequestFailsForMemoryOnlyIfItDoesAlone) {
  const ScoreInput input = MakeInput(1);
  const std::vector<Hidden> expected = Score({input, MakeInput(2)});
  Restart();
  ResetWorkOfDevice();
  Score({input});
  const int64_t one = WorkOfDevice().peak_bytes;
  Restart();
  ResetWorkOfDevice();
  Score({input, MakeInput(2)});
  const int64_t both = WorkOfDevice().peak_bytes;
  ASSERT_LT(one, both);
  Restart();
  LimitDeviceMemory(one + (both - one) / 2);
  const std::vector<Hidden> got = Score({input, MakeInput(2)});
  LimitDeviceMemory(0);
  Restart();
  LimitDeviceMemory(WorkOfDevice().live_bytes + 1000);
  const ScoreJob job = {&input, [](ViewScores) { return true; }};
  EXPECT_EQ(scorer_->ScoreTogether({&job, 1})[0].status().code(),
            absl::StatusCode::kResourceExhausted);
  LimitDeviceMemory(0);
  for (size_t i = 0; i < 2; ++i) {
    for (const auto& [view, hidden] : expected[i]) {
      EXPECT_TRUE(at::equal(hidden, got[i].at(view)));
    }
  }
}

// The sets take turns in the columns of the packed weights; an adapter that
// does not fit these columns has the weights packed anew.
TEST_F(DeviceScorerTest, EverySetScoresUnderItsOwnAdapter) {
  const auto upload = [&](WeightSet set, int64_t rank, uint64_t seed) {
    Adapter adapter =
        MakeFreshAdapter(weights_->config, {.rank = rank}, seed, at::kCPU);
    for (const at::Tensor& tensor : adapter.Tensors()) tensor.add_(0.02);
    AdapterUpload made;
    made.set = set;
    made.adapter = *SerializeAdapter(adapter, "base");
    made.probe_ids = {1, 2, 3};
    return made;
  };
  const std::vector<AdapterUpload> uploads = {
      upload(WeightSet::kSnapshot, 4, 3),
      upload(WeightSet::kEma, 4, 5),
      upload(WeightSet::kLive, 12, 7)};
  std::vector<ScoreInput> inputs = {MakeInput(1)};
  for (const AdapterUpload& each : uploads) {
    inputs.push_back(MakeInput(1));
    inputs.back().weights = each.set;
  }
  std::vector<Hidden> alone;
  // `least` is the smallest distance between two sets' scores. A score belongs
  // to its set if it is much nearer to it than `least`, whatever bfloat16 sums
  // this processor computes.
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < inputs.size(); ++i) {
    Restart();
    if (i > 0) {
      ASSERT_TRUE(scorer_->Load(uploads[i - 1]).ok());
    }
    alone.push_back(Score({inputs[i]}).front());
    for (size_t j = 0; j < i; ++j) {
      least = std::min(
          least,
          RelativeError(alone[i].begin()->second, alone[j].begin()->second));
    }
  }
  const double limit = least / 4;
  double error = 0;
  double error_on_cpu = 0;
  Restart();
  for (const AdapterUpload& each : uploads) {
    ASSERT_TRUE(scorer_->Load(each).ok());
  }
  for (int round = 0; round < 2; ++round) {
    const std::vector<Hidden> together = Score(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (const auto& [view, hidden] : alone[i]) {
        error = std::max(error, RelativeError(together[i].at(view), hidden));
      }
    }
  }
  // The scores are also compared with the CPU's scores, which are computed
  // differently.
  const auto on_cpu = MakeSmallModel(at::kBFloat16);
  scorer_ = MakeModelScorer(on_cpu, {.chunk_tokens = 16}, int64_t{1} << 30);
  for (const AdapterUpload& each : uploads) {
    ASSERT_TRUE(scorer_->Load(each).ok());
  }
  const std::vector<Hidden> expected = Score(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const auto& [view, hidden] : alone[i]) {
      error_on_cpu =
          std::max(error_on_cpu, RelativeError(hidden, expected[i].at(view)));
    }
  }
  std::cout << "together " << error << ", on the CPU " << error_on_cpu
            << ", of a least distance of " << least << std::endl;
  EXPECT_LT(error, limit);
  EXPECT_LT(error_on_cpu, limit);
}

// A copy to the device also reports errors of work that was launched before.
TEST_F(DeviceScorerTest, AnAdapterThatDoesNotFitIsAnErrorNotTheEnd) {
  LoraConfig lora;
  lora.rank = 4;
  AdapterUpload upload;
  upload.set = WeightSet::kSnapshot;
  upload.adapter = *SerializeAdapter(
      MakeFreshAdapter(weights_->config, lora, 3, at::kCPU), "base");
  upload.probe_ids = {1, 2, 3};
  LimitDeviceMemory(WorkOfDevice().live_bytes + 1);
  const auto full = scorer_->Load(upload);
  LimitDeviceMemory(0);
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted)
      << full.status();
  EXPECT_TRUE(scorer_->Load(upload).ok());
}

}  // namespace
}  // namespace dapd
