#include <algorithm>
#include <iostream>
#include <map>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/reference/decoder.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/model_scorer.h"
#include "tests/services/teacher/model_scorer_fixture.h"

namespace dapd {
namespace {

// The expected values come from one pass over each whole view.
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
      std::cout << NameOf(set) << ", " << ViewNameString(name) << ": error "
                << error << "\n";
      EXPECT_LT(error, 2e-5);
    }
  }
}

TEST_F(ModelScorerTest, WhatIsComputedAheadChangesNoBit) {
  SetLongViews();
  const Scores expected = Score(Payload::kHiddenStates);
  EXPECT_EQ(work_.computed_tokens + work_.reused_tokens, 60 + 52);
  EXPECT_EQ(work_.reused_tokens, 16);  // both views begin with these two chunks
  LoadScorer();
  // Both views grow in turn by three tokens.
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

// Views are scored together in passes of several chunks, some of them computed
// ahead.
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
    // Whole chunks that views share are computed once.
    EXPECT_EQ(outcomes[0]->computed_tokens + outcomes[0]->reused_tokens,
              60 + 52);
    EXPECT_EQ(outcomes[2]->computed_tokens, 4 + 4);
  }
}

// Tokens that are too few for a pass wait until more tokens come.
TEST_F(ModelScorerTest, APassAheadIsAtLeastHalfFull) {
  SetLongViews();
  LoadScorerOfFixedRows();
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
  EXPECT_EQ(other.tokens, 48);  // the first 16 are computed once
}

TEST_F(ModelScorerTest, ASetWithTooLittleForAPassKeepsNoOtherWaiting) {
  SetLongViews();
  LoadScorerOfFixedRows();
  ASSERT_TRUE(scorer_->Load(MakeUpload()).ok());
  std::vector<int32_t> ids = input_.views[kA].input_ids;
  ids.resize(20);
  HeldPrefix few;
  HeldPrefix enough;
  const AheadSequence both[] = {
      {WeightSet::kBase, &ids, &few},
      {WeightSet::kSnapshot, &input_.views[kB].input_ids, &enough}};
  EXPECT_EQ(scorer_->Advance(both).value(), 48);
  EXPECT_EQ(few.tokens, 0);
  EXPECT_EQ(enough.tokens, 48);
}

}  // namespace
}  // namespace dapd
