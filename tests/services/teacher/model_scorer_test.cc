#include "services/teacher/model_scorer.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "common/model/reference/token_logprobs.h"
#include "tests/services/teacher/model_scorer_fixture.h"

namespace dapd {
namespace {

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
  ScoringShape shape = ScoringShapeFor(config_.teacher, at::kCPU);
  shape.head_rows = 2;  // of views with five and two rows
  scorer_ = MakeModelScorer(weights_, shape, /*prefix_bytes=*/0, nullptr);
  const Scores hidden = Score(Payload::kHiddenStates);
  const Scores logits = Score(Payload::kLogits);
  input_.top_k = 5;
  input_.temperature = 1.1;
  const Scores top_k = Score(Payload::kTopK);
  for (const auto& [name, view] : input_.views) {
    const at::Tensor states = hidden.at(name).at("hidden");
    const at::Tensor full = logits.at(name).at("logits");
    EXPECT_TRUE(at::allclose(ApplyHead(*weights_, states), full, 1e-5, 1e-6));
    const auto [values, ids] = at::log_softmax(full / 1.1, -1).topk(5, -1);
    EXPECT_TRUE(at::allclose(top_k.at(name).at("logprobs"), values));
    EXPECT_TRUE(at::equal(top_k.at(name).at("ids").to(at::kLong), ids));
  }
}

// A bfloat16 logit is off by up to 0.4 %, and the objective would be, too.
TEST_F(ModelScorerTest, ABFloat16ModelsLogitsAreNotRounded) {
  config_.model.precision = Precision::kBfloat16;
  LoadScorer();
  const Scores hidden = Score(Payload::kHiddenStates);
  const Scores logits = Score(Payload::kLogits);
  for (const auto& [name, view] : input_.views) {
    const at::Tensor exact =
        at::linear(hidden.at(name).at("hidden").to(at::kDouble),
                   weights_->head.to(at::kBFloat16).to(at::kDouble));
    const double error =
        (logits.at(name).at("logits") - exact).abs().max().item<double>();
    EXPECT_LT(error, 1e-5 * exact.abs().max().item<double>());
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
  EXPECT_EQ(applied->modules_applied, 2 * 7);
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
  const std::vector<int32_t> probe_ids = {1, 2, 3, 4};
  const auto applied = scorer_->Probe(WeightSet::kBase, probe_ids);
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->probe_logprobs[0],
            TokenLogprobs(*weights_, nullptr, probe_ids)[0].item<float>());
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

TEST_F(ModelScorerTest, ASinkThatWantsNoMoreEndsTheRequest) {
  int views = 0;
  const auto done =
      scorer_->Score(input_, [&](ViewScores) { return ++views < 1; });
  EXPECT_EQ(done.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(views, 1);
}

}  // namespace
}  // namespace dapd
