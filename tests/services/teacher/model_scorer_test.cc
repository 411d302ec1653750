#include "services/teacher/model_scorer.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/reference/decoder.h"
#include "common/model/reference/token_logprobs.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/load_scorer.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/tiny_model.h"

namespace dapd {
namespace {

using Scores = std::map<ViewName, std::map<std::string, at::Tensor>>;

constexpr ViewName kA = ViewName::kNoneRollout;
constexpr ViewName kB = ViewName::kSelfRollout;

class ModelScorerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.model.path = TempPath("model");
    config_.model.precision = "float32";
    config_.model.device = "cpu";
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

  // Two views of 61 and 53 tokens that share their first 20.
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

  // A random adapter that changes the model.
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

  // Computes ahead as much as one call does; says whether that was anything.
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
  ScoreWork work_;  // of the last Score
};

TEST_F(ModelScorerTest, TheDescriptionIsTheModels) {
  EXPECT_EQ(description_.service, "teacher");
  EXPECT_EQ(description_.layout_digest, weights_->layout_digest);
  EXPECT_EQ(description_.precision, "float32");
  EXPECT_EQ(description_.vocab_size, kTinyVocab);
  EXPECT_EQ(description_.hidden_size, kTinyHidden);
  EXPECT_EQ(description_.max_positions, 64);
}

TEST_F(ModelScorerTest, AnAdapterOfTheConfiguredRankFitsTheLimit) {
  const uint64_t bytes = MakeUpload().adapter.tensors.size();
  EXPECT_LE(bytes, description_.max_adapter_bytes);
  EXPECT_GT(2 * bytes, description_.max_adapter_bytes);
}

TEST_F(ModelScorerTest, LogitsPredictTheScoredTokens) {
  const Scores scores = Score(Payload::kLogits);
  for (const auto& [name, view] : input_.views) {
    const at::Tensor logits = scores.at(name).at("logits");
    ASSERT_EQ(logits.sizes(), (at::IntArrayRef{view.scored_count, kTinyVocab}));
    const at::Tensor expected =
        TokenLogprobs(*weights_, nullptr, view.input_ids);
    const at::Tensor logprobs = at::log_softmax(logits, -1);
    for (int64_t i = 0; i < view.scored_count; ++i) {
      const int64_t position = view.scored_from + i;
      const int32_t token = view.input_ids[static_cast<size_t>(position)];
      EXPECT_NEAR(logprobs[i][token].item<float>(),
                  expected[position - 1].item<float>(),
                  1e-5);
    }
  }
}

TEST_F(ModelScorerTest, TheThreePayloadsAgree) {
  const Scores hidden = Score(Payload::kHiddenStates);
  const Scores logits = Score(Payload::kLogits);
  input_.top_k = 5;
  input_.temperature = 1.1;
  const Scores top_k = Score(Payload::kTopK);
  for (const auto& [name, view] : input_.views) {
    const at::Tensor states = hidden.at(name).at("hidden");
    const at::Tensor full = logits.at(name).at("logits");
    EXPECT_TRUE(at::equal(ApplyHead(*weights_, states), full));
    const auto [values, ids] = at::log_softmax(full / 1.1, -1).topk(5, -1);
    EXPECT_TRUE(at::allclose(top_k.at(name).at("logprobs"), values));
    EXPECT_TRUE(at::equal(top_k.at(name).at("ids").to(at::kLong), ids));
  }
}

TEST_F(ModelScorerTest, TheSameRequestGivesTheSameBits) {
  const Scores first = Score(Payload::kHiddenStates);
  std::swap(input_.views[kA], input_.views[kB]);
  Score(Payload::kLogits);
  std::swap(input_.views[kA], input_.views[kB]);
  const Scores second = Score(Payload::kHiddenStates);
  for (const auto& [view, tensors] : first) {
    EXPECT_TRUE(at::equal(tensors.at("hidden"), second.at(view).at("hidden")));
  }
}

TEST_F(ModelScorerTest, TheProbeIsThatOfTheUploadedWeights) {
  const AdapterUpload upload = MakeUpload();
  const auto applied = scorer_->Load(upload);
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->modules_applied, 2 * kNumProjections);
  const at::Tensor expected =
      TokenLogprobs(*weights_, &adapter_, upload.probe_ids);
  ASSERT_EQ(applied->probe_logprobs.size(), 3U);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(applied->probe_logprobs[static_cast<size_t>(i)],
              expected[i].item<float>());
  }
}

TEST_F(ModelScorerTest, SnapshotAndBaseAreToldApart) {
  const at::Tensor base = Score(Payload::kHiddenStates)[kA]["hidden"];
  ASSERT_TRUE(scorer_->Load(MakeUpload()).ok());
  EXPECT_TRUE(at::equal(Score(Payload::kHiddenStates)[kA]["hidden"], base));
  input_.weights = WeightSet::kSnapshot;
  const at::Tensor snapshot = Score(Payload::kHiddenStates)[kA]["hidden"];
  EXPECT_GT((snapshot - base).abs().max().item<float>(), 1e-3);
}

TEST_F(ModelScorerTest, EachSetKeepsItsOwnAdapter) {
  AdapterUpload upload = MakeUpload();
  ASSERT_TRUE(scorer_->Load(upload).ok());
  upload.set = WeightSet::kLive;
  ASSERT_TRUE(scorer_->Load(upload).ok());
  input_.weights = WeightSet::kLive;
  const at::Tensor live = Score(Payload::kHiddenStates)[kA]["hidden"];
  for (at::Tensor& tensor : adapter_.Tensors()) tensor.add_(0.05);
  upload.set = WeightSet::kEma;
  upload.adapter = *SerializeAdapter(adapter_, config_.model.path);
  ASSERT_TRUE(scorer_->Load(upload).ok());
  EXPECT_TRUE(at::equal(Score(Payload::kHiddenStates)[kA]["hidden"], live));
  input_.weights = WeightSet::kSnapshot;
  EXPECT_TRUE(at::equal(Score(Payload::kHiddenStates)[kA]["hidden"], live));
  input_.weights = WeightSet::kEma;
  EXPECT_FALSE(at::equal(Score(Payload::kHiddenStates)[kA]["hidden"], live));
}

TEST_F(ModelScorerTest, AProbeOfTheBaseChangesNoSet) {
  ASSERT_TRUE(scorer_->Load(MakeUpload()).ok());
  input_.weights = WeightSet::kSnapshot;
  const at::Tensor before = Score(Payload::kHiddenStates)[kA]["hidden"];
  AdapterUpload base;
  base.set = WeightSet::kBase;
  base.is_base = true;
  base.probe_ids = {1, 2, 3, 4};
  const auto applied = scorer_->Load(base);
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->probe_logprobs[0],
            TokenLogprobs(*weights_, nullptr, base.probe_ids)[0].item<float>());
  EXPECT_TRUE(at::equal(Score(Payload::kHiddenStates)[kA]["hidden"], before));
}

TEST_F(ModelScorerTest, ABadAdapterLeavesTheOldSnapshot) {
  ASSERT_TRUE(scorer_->Load(MakeUpload()).ok());
  input_.weights = WeightSet::kSnapshot;
  const at::Tensor before = Score(Payload::kHiddenStates)[kA]["hidden"];
  AdapterUpload bad = MakeUpload();
  bad.adapter.config_json = "{}";
  EXPECT_FALSE(scorer_->Load(bad).ok());
  EXPECT_TRUE(at::equal(Score(Payload::kHiddenStates)[kA]["hidden"], before));
}

// The slow twin: each view whole, in one pass.
TEST_F(ModelScorerTest, ChunksGiveWhatOnePassOverTheViewGives) {
  SetLongViews();
  ASSERT_TRUE(scorer_->Load(MakeUpload()).ok());
  for (const WeightSet set : {WeightSet::kBase, WeightSet::kSnapshot}) {
    input_.weights = set;
    const Scores scores = Score(Payload::kHiddenStates);
    for (const auto& [name, view] : input_.views) {
      const at::NoGradGuard no_grad;
      const at::Tensor expected =
          ForwardHidden(*weights_,
                        set == WeightSet::kBase ? nullptr : &adapter_,
                        PackTokens({view.input_ids}, at::kCPU),
                        at::arange(view.scored_from - 1,
                                   view.scored_from + view.scored_count - 1));
      const float error =
          (scores.at(name).at("hidden") - expected).abs().max().item<float>();
      std::cout << WeightSetName(set) << ", " << ViewNameString(name)
                << ": error " << error << "\n";
      EXPECT_LT(error, 2e-5);
    }
  }
}

TEST_F(ModelScorerTest, WhatIsComputedAheadChangesNoBit) {
  SetLongViews();
  const Scores expected = Score(Payload::kHiddenStates);
  EXPECT_EQ(work_.computed_tokens + work_.reused_tokens, 60 + 52);
  EXPECT_EQ(work_.reused_tokens, 16);  // two chunks that both views begin with
  LoadScorer();
  // Tokens come three at a time, of both views in turn.
  std::map<ViewName, HeldPrefix> held;
  for (int64_t known = 0; known < 58; known += 3) {
    for (const auto& [name, view] : input_.views) {
      std::vector<int32_t> ids = view.input_ids;
      ids.resize(std::min(ids.size(), static_cast<size_t>(known)));
      while (Advance(ids, &held[name])) {
      }
    }
  }
  EXPECT_EQ(held[kA].tokens, 56);
  EXPECT_EQ(held[kB].tokens, 48);
  const Scores ahead = Score(Payload::kHiddenStates);
  EXPECT_EQ(work_.computed_tokens, 4 + 4);
  EXPECT_EQ(work_.reused_tokens, 56 + 48);
  for (const auto& [view, tensors] : expected) {
    EXPECT_TRUE(at::equal(tensors.at("hidden"), ahead.at(view).at("hidden")));
  }
}

TEST_F(ModelScorerTest, WithoutMemoryNothingIsKeptAndNoBitChanges) {
  SetLongViews();
  const Scores expected = Score(Payload::kHiddenStates);
  config_.teacher.prefix_memory_mib = 0;
  LoadScorer();
  HeldPrefix held;
  EXPECT_FALSE(Advance(input_.views[kA].input_ids, &held));
  const Scores alone = Score(Payload::kHiddenStates);
  EXPECT_EQ(work_.reused_tokens, 16);  // within the request
  Score(Payload::kHiddenStates);
  EXPECT_EQ(work_.reused_tokens, 16);
  for (const auto& [view, tensors] : expected) {
    EXPECT_TRUE(at::equal(tensors.at("hidden"), alone.at(view).at("hidden")));
  }
}

TEST_F(ModelScorerTest, WhatIsHeldIsNotForgotten) {
  SetLongViews();
  HeldPrefix held;
  ASSERT_TRUE(Advance(input_.views[kA].input_ids, &held));
  Score(Payload::kHiddenStates);
  scorer_->Forget();
  Score(Payload::kHiddenStates);
  EXPECT_EQ(work_.reused_tokens, 8 + 16);
}

TEST_F(ModelScorerTest, ANewSnapshotFindsNothingOfTheOld) {
  SetLongViews();
  input_.weights = WeightSet::kSnapshot;
  ASSERT_TRUE(scorer_->Load(MakeUpload()).ok());
  const Scores before = Score(Payload::kHiddenStates);
  AdapterUpload other = MakeUpload();
  for (at::Tensor& tensor : adapter_.Tensors()) tensor.add_(0.05);
  other.adapter = *SerializeAdapter(adapter_, config_.model.path);
  ASSERT_TRUE(scorer_->Load(other).ok());
  const Scores after = Score(Payload::kHiddenStates);
  EXPECT_EQ(work_.reused_tokens, 16);
  EXPECT_FALSE(
      at::equal(before.at(kA).at("hidden"), after.at(kA).at("hidden")));
}

// Scored together in passes of several chunks, some of them computed ahead.
TEST_F(ModelScorerTest, WhatPassesTogetherChangesNoBit) {
  SetLongViews();
  const Scores expected = Score(Payload::kHiddenStates);
  const auto weights =
      *LoadModelWeights(config_.model.path, at::kFloat, at::kCPU);
  for (const auto& [tokens, fixed, held_tokens] :
       std::vector<std::tuple<int64_t, bool, int64_t>>{{8, true, 0},
                                                       {20, true, 0},
                                                       {20, true, 16},
                                                       {64, true, 56},
                                                       {8, false, 0},
                                                       {20, false, 0},
                                                       {64, false, 8}}) {
    scorer_ = MakeModelScorer(weights,
                              {.chunk_tokens = 8,
                               .pass_tokens = tokens,
                               .has_fixed_rows = fixed,
                               .most_together = 3},
                              int64_t{1} << 30);
    HeldPrefix held;
    if (held_tokens > 0) Advance(input_.views[kA].input_ids, &held);
    EXPECT_EQ(held.tokens, held_tokens);
    std::vector<std::map<ViewName, at::Tensor>> got(3);
    std::vector<ScoreJob> jobs;
    for (auto& views : got) {
      jobs.push_back({&input_, [&views](ViewScores scores) {
                        views[scores.view] =
                            ToTorch(scores.tensors.front().second).clone();
                        return true;
                      }});
    }
    // The second client goes away.
    jobs[1].sink = [](ViewScores) { return false; };
    const auto outcomes = scorer_->ScoreTogether(jobs);
    ASSERT_EQ(outcomes.size(), 3U);
    EXPECT_EQ(outcomes[1].status().code(), absl::StatusCode::kCancelled);
    for (const size_t job : {0, 2}) {
      ASSERT_TRUE(outcomes[job].ok()) << outcomes[job].status();
      for (const auto& [view, tensors] : expected) {
        EXPECT_TRUE(at::equal(tensors.at("hidden"), got[job].at(view)));
      }
    }
    // Whole chunks of the same views are computed once.
    EXPECT_EQ(outcomes[0]->computed_tokens + outcomes[0]->reused_tokens,
              60 + 52);
    EXPECT_EQ(outcomes[2]->computed_tokens, 4 + 4);
  }
}

// What is too little for a pass waits until there is more of it.
TEST_F(ModelScorerTest, APassAheadIsAtLeastHalfFull) {
  SetLongViews();
  scorer_ = MakeModelScorer(
      *LoadModelWeights(config_.model.path, at::kFloat, at::kCPU),
      {.chunk_tokens = 8,
       .pass_tokens = 48,
       .has_fixed_rows = true,
       .most_together = 3},
      int64_t{1} << 30);
  std::vector<int32_t> ids = input_.views[kA].input_ids;
  ids.resize(20);
  HeldPrefix held;
  EXPECT_FALSE(Advance(ids, &held));
  EXPECT_EQ(held.tokens, 0);
  HeldPrefix other;
  const AheadSequence both[] = {
      {WeightSet::kBase, &ids, &held},
      {WeightSet::kBase, &input_.views[kB].input_ids, &other}};
  EXPECT_EQ(scorer_->Advance(both).value(), 16 + 48);
  EXPECT_EQ(held.tokens, 16);
  EXPECT_EQ(other.tokens, 48);  // the first 16 once
}

TEST_F(ModelScorerTest, ASinkThatWantsNoMoreEndsTheRequest) {
  int views = 0;
  const auto done =
      scorer_->Score(input_, [&](ViewScores) { return ++views < 1; });
  EXPECT_EQ(done.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(views, 1);
}

}  // namespace
}  // namespace dapd
