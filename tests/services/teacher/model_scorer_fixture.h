// A scorer of the tiny model, and requests for its tests.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/weights/adapter.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/load_scorer.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/tiny_model.h"

namespace dapd {

using Scores = std::map<ViewName, std::map<std::string, at::Tensor>>;

inline constexpr ViewName kA = ViewName::kNoneRollout;
inline constexpr ViewName kB = ViewName::kSelfRollout;

class ModelScorerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.model.path = TempPath("model");
    config_.model.precision = Precision::kFloat32;
    config_.model.device = DeviceChoice::kCpu;
    config_.lora.rank = 4;
    config_.teacher.chunk_tokens = 8;
    WriteTinyModel(config_.model.path, 7);
    LoadScorer();
    weights_ = *LoadModelWeights(config_.model.path, at::kFloat, at::kCPU);
    input_.views = {{kA, {{3, 14, 15, 92, 65, 35, 89, 79}, 3, 5}},
                    {kB, {{27, 18, 28}, 1, 2}}};
  }

  void LoadScorer() {
    auto loaded = LoadModelScorer(config_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    scorer_ = std::move(loaded->scorer);
    description_ = loaded->description;
  }

  // As on a GPU, a pass has 48 rows, however few it needs.
  void LoadScorerOfFixedRows() {
    scorer_ = MakeModelScorer(
        *LoadModelWeights(config_.model.path, at::kFloat, at::kCPU),
        {.chunk_tokens = 8,
         .pass_tokens = 48,
         .has_fixed_rows = true,
         .most_together = 3},
        int64_t{1} << 30);
  }

  // Sets two views of 61 and 53 tokens whose first 20 tokens are equal.
  void SetLongViews() {
    input_.views = {{kA, {{}, 30, 31}}, {kB, {{}, 21, 32}}};
    for (int32_t i = 0; i < 61; ++i) {
      input_.views[kA].input_ids.push_back(i * 7 % kTinyVocab);
      if (i < 53) {
        input_.views[kB].input_ids.push_back((i < 20 ? i * 7 : i * 5 + 1) %
                                             kTinyVocab);
      }
    }
  }

  // Makes a random adapter that changes the model.
  AdapterUpload MakeUpload() {
    LoraConfig lora;
    lora.rank = 4;
    adapter_ = MakeFreshAdapter(weights_->config, lora, 3, at::kCPU);
    for (at::Tensor& tensor : adapter_.Tensors()) tensor.add_(0.05);
    AdapterUpload upload;
    upload.set = WeightSet::kSnapshot;
    upload.version = 2;
    upload.adapter = *SerializeAdapter(adapter_, config_.model.path);
    upload.probe_ids = {1, 2, 3, 4};
    return upload;
  }

  Scores Score(Payload payload) {
    input_.payload = payload;
    Scores scores;
    const auto done = scorer_->Score(input_, [&](ViewScores view) {
      for (const auto& [name, tensor] : view.tensors) {
        scores[view.view][name] = ToTorch(tensor).clone();
      }
      return true;
    });
    EXPECT_TRUE(done.ok()) << done.status();
    if (done.ok()) work_ = *done;
    return scores;
  }

  // Computes ahead as much as one call computes; returns whether it computed
  // any.
  bool Advance(const std::vector<int32_t>& ids, HeldPrefix* held) {
    const AheadSequence sequence{WeightSet::kBase, &ids, held};
    return scorer_->Advance({&sequence, 1}).value() > 0;
  }

  Config config_;
  std::unique_ptr<Scorer> scorer_;
  WorkerDescription description_;
  std::shared_ptr<const ModelWeights> weights_;
  Adapter adapter_;
  ScoreInput input_;
  ScoreWork work_;  // of the last Score()
};

}  // namespace dapd
