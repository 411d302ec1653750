#include "common/objective/forward_ahead.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/config/preset_terms.h"
#include "common/objective/micro_batch.h"
#include "common/objective/score_locally.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/small_memory.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 30;

std::vector<Term> PaperTerms() { return ExpandTerms(ObjectiveSection{}); }

View MakeView(const std::vector<std::vector<int32_t>>& parts) {
  View view;
  for (const std::vector<int32_t>& part : parts) {
    view.input_ids.insert(view.input_ids.end(), part.begin(), part.end());
  }
  view.scored_count = static_cast<int64_t>(parts.back().size());
  view.scored_from =
      static_cast<int64_t>(view.input_ids.size()) - view.scored_count;
  return view;
}

// The views have ViewBuilder's order: none_rollout begins self_rollout.
ScoredSample MakeSample(const ModelWeights& weights,
                        int64_t rollout_tokens,
                        int64_t seed) {
  const std::vector<int32_t> prompt = RandomModelIds(7, seed);
  const std::vector<int32_t> other = RandomModelIds(9, seed + 100);
  const std::vector<int32_t> rollout =
      RandomModelIds(rollout_tokens, seed + 200);
  const std::vector<int32_t> reference = RandomModelIds(15, seed + 300);
  ScoredSample sample;
  const auto set = [&](ViewName name, View view) {
    sample.views[static_cast<size_t>(name)] = std::move(view);
  };
  set(ViewName::kNoneRollout, MakeView({prompt, rollout}));
  set(ViewName::kSelfRollout, MakeView({prompt, rollout, rollout}));
  set(ViewName::kCrossRollout, MakeView({other, reference, rollout}));
  set(ViewName::kNoneReference, MakeView({prompt, reference}));
  set(ViewName::kSelfReference, MakeView({other, reference, reference}));
  set(ViewName::kCrossReference, MakeView({other, rollout, reference}));
  sample.scores = ScoreLocally(weights,
                               {{WeightSet::kSnapshot, nullptr}},
                               TeacherPasses(PaperTerms()),
                               sample.views);
  return sample;
}

class ForwardAheadTest : public testing::Test {
 protected:
  ForwardAhead MakeAhead(ByteBudget& memory) {
    return ForwardAhead(*weights_, adapter_, terms_, limits_, memory);
  }

  std::vector<Views> ViewsOfSamples() const {
    std::vector<Views> views;
    for (const ScoredSample& sample : samples_) views.push_back(sample.views);
    return views;
  }

  std::vector<int32_t> NoneRollout(size_t sample, size_t tokens) const {
    const std::vector<int32_t>& ids =
        samples_[sample]
            .views[static_cast<size_t>(ViewName::kNoneRollout)]
            .input_ids;
    return {ids.begin(), ids.begin() + static_cast<int64_t>(tokens)};
  }

  // Returns the flat gradient of the micro-batch of all samples.
  at::Tensor Gradient(ForwardAhead* ahead) {
    const MicroBatchResult result =
        ComputeMicroBatch(*weights_,
                          adapter_,
                          terms_,
                          samples_,
                          {.limits = limits_, .ahead = ahead});
    std::vector<at::Tensor> parts;
    for (const LoraLayer& layer : result.gradients) {
      for (const LoraPair& pair : layer) {
        parts.push_back(pair.a.flatten());
        parts.push_back(pair.b.flatten());
      }
    }
    return at::cat(parts);
  }

  std::shared_ptr<const ModelWeights> weights_ = MakeRandomModel("qwen3");
  Adapter adapter_ = MakeTrainedAdapter(weights_->config);
  std::vector<Term> terms_ = PaperTerms();
  PassLimits limits_ = {.activation_bytes = 0, .chunk_tokens = 8};
  std::vector<ScoredSample> samples_ = {MakeSample(*weights_, 30, 1),
                                        MakeSample(*weights_, 11, 2)};
};

TEST_F(ForwardAheadTest, WhatWasRunAheadChangesNoBit) {
  const at::Tensor expected = Gradient(nullptr);
  for (const int64_t activation_bytes : {int64_t{0}, kUnlimitedActivations}) {
    limits_.activation_bytes = activation_bytes;
    ByteBudget memory(kPlenty);
    ForwardAhead ahead = MakeAhead(memory);
    ahead.PlanReferences({ViewsOfSamples()});
    // The prefixes of the answers grow; the prompt has 7 tokens.
    EXPECT_FALSE(ahead.AdvanceRollout(NoneRollout(0, 7)));
    EXPECT_TRUE(ahead.AdvanceRollout(NoneRollout(0, 18)));
    EXPECT_TRUE(ahead.AdvanceRollout(NoneRollout(0, 18)));
    EXPECT_FALSE(ahead.AdvanceRollout(NoneRollout(0, 18)));
    EXPECT_TRUE(ahead.AdvanceRollout(NoneRollout(0, 30)));
    EXPECT_TRUE(ahead.AdvanceRollout(NoneRollout(1, 8)));
    EXPECT_EQ(ahead.tokens(), 4 * 8);
    EXPECT_TRUE(ahead.AdvancePass()) << "both references side by side";
    EXPECT_FALSE(ahead.AdvancePass());
    EXPECT_TRUE(at::equal(Gradient(&ahead), expected)) << "prefixes";
    EXPECT_EQ(memory.left(), kPlenty) << "all was handed over";

    const int64_t tokens_before = ahead.tokens();
    EXPECT_TRUE(ahead.AdvanceRollout(NoneRollout(0, 8)));
    ahead.PlanReferences({ViewsOfSamples()});
    ahead.PlanRollouts(0, ViewsOfSamples());
    EXPECT_TRUE(ahead.AdvancePass());
    EXPECT_TRUE(ahead.AdvancePass());
    EXPECT_FALSE(ahead.AdvancePass());
    // References have 7 + 14 and 24 + 14 tokens, rollouts 7 + 2 x 30 - 1 and 7
    // + 2 x 11 - 1.
    EXPECT_EQ(ahead.tokens() - tokens_before, 2 * (21 + 38) + 66 + 28);
    EXPECT_LT(memory.left(), kPlenty);
    EXPECT_TRUE(at::equal(Gradient(&ahead), expected)) << "whole passes";
    EXPECT_EQ(memory.left(), kPlenty);
  }
}

TEST_F(ForwardAheadTest, InFloat32ChunksChangeNoBit) {
  const at::Tensor expected = Gradient(nullptr);
  limits_.chunk_tokens = 0;
  EXPECT_TRUE(at::equal(Gradient(nullptr), expected));
  ByteBudget memory(kPlenty);
  ForwardAhead ahead = MakeAhead(memory);
  EXPECT_FALSE(ahead.AdvanceRollout(NoneRollout(0, 30)));
}

// The last of 7 + 18 tokens is not needed: three chunks hold the other tokens.
TEST_F(ForwardAheadTest, AnAnswerOfWholeChunksLeavesATokenToItsPass) {
  terms_ = {PaperTerms()[0]};
  ASSERT_EQ(terms_[0].student, ViewName::kNoneRollout);
  samples_ = {MakeSample(*weights_, 18, 1)};
  const at::Tensor expected = Gradient(nullptr);
  limits_.chunk_tokens = 0;
  EXPECT_TRUE(at::equal(Gradient(nullptr), expected));
}

TEST_F(ForwardAheadTest, ASampleThatCannotBeTrainedLeavesNothingBehind) {
  ByteBudget memory(kPlenty);
  ForwardAhead ahead = MakeAhead(memory);
  ahead.PlanReferences({ViewsOfSamples(), ViewsOfSamples()});
  EXPECT_TRUE(ahead.AdvancePass());
  samples_.pop_back();
  const at::Tensor expected = Gradient(nullptr);
  EXPECT_TRUE(at::equal(Gradient(&ahead), expected));
  EXPECT_LT(memory.left(), kPlenty) << "the pass of both samples";
  ahead.Forget(0);
  EXPECT_EQ(memory.left(), kPlenty);
  EXPECT_TRUE(ahead.AdvancePass()) << "of the other micro-batch";
  EXPECT_FALSE(ahead.AdvancePass());
}

TEST_F(ForwardAheadTest, KeepsNoMoreThanItsMemory) {
  ByteBudget none(0);
  ForwardAhead nothing = MakeAhead(none);
  nothing.PlanReferences({ViewsOfSamples()});
  EXPECT_FALSE(nothing.AdvancePass());
  EXPECT_FALSE(nothing.AdvanceRollout(NoneRollout(0, 30)));

  ByteBudget memory(kPlenty);
  ForwardAhead one = MakeAhead(memory);
  one.PlanReferences({ViewsOfSamples()});
  ASSERT_TRUE(one.AdvancePass());
  const int64_t bytes = kPlenty - memory.left();
  ByteBudget enough(2 * bytes - 1);
  ForwardAhead ahead = MakeAhead(enough);
  ahead.PlanReferences({ViewsOfSamples(), ViewsOfSamples()});
  EXPECT_TRUE(ahead.AdvancePass());
  EXPECT_FALSE(ahead.AdvancePass());
}

// Activations get the memory that the inputs of all planned passes leave.
TEST_F(ForwardAheadTest, InputsOfAllPassesComeBeforeActivations) {
  limits_.activation_bytes = kUnlimitedActivations;
  ByteBudget inputs_only(kPlenty);
  {
    PassLimits limits = limits_;
    limits.activation_bytes = 0;
    ForwardAhead ahead(*weights_, adapter_, terms_, limits, inputs_only);
    ahead.PlanReferences({ViewsOfSamples(), ViewsOfSamples()});
    while (ahead.AdvancePass()) {
    }
    ByteBudget memory(kPlenty - inputs_only.left());
    ForwardAhead tight = MakeAhead(memory);
    tight.PlanReferences({ViewsOfSamples(), ViewsOfSamples()});
    EXPECT_TRUE(tight.AdvancePass());
    EXPECT_TRUE(tight.AdvancePass());
    EXPECT_EQ(memory.left(), 0);
  }
}

TEST_F(ForwardAheadTest, ADeviceWithoutRoomEndsItAndCostsNothing) {
  const at::Tensor expected = Gradient(nullptr);
  ByteBudget memory(kPlenty);
  ForwardAhead ahead = MakeAhead(memory);
  ahead.PlanReferences({ViewsOfSamples()});
  EXPECT_TRUE(ahead.AdvanceRollout(NoneRollout(0, 8)));
  {
    const SmallMemory small(20 * 48 * 4);
    EXPECT_FALSE(ahead.AdvancePass());
  }
  EXPECT_EQ(memory.left(), kPlenty) << "the chunk was dropped, too";
  EXPECT_FALSE(ahead.AdvancePass());
  EXPECT_FALSE(ahead.AdvanceRollout(NoneRollout(0, 30)));
  EXPECT_TRUE(at::equal(Gradient(&ahead), expected));
}

}  // namespace
}  // namespace dapd
