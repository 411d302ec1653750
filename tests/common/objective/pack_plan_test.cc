#include "common/objective/pack_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/preset_terms.h"
#include "common/model/fast/layer_pass.h"
#include "tests/fakes/random_model.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

View MakeView(int64_t tokens, int32_t start) {
  return {RandomModelIds(tokens, start), tokens - 2, 2};
}

class PackPlanTest : public testing::Test {
 protected:
  // Adds a sample whose views need one token less than `tokens`.
  void AddSample(int64_t tokens) {
    Views views;
    const auto start = static_cast<int32_t>(5 * samples_.size());
    for (size_t i = 0; i < views.size(); ++i) {
      views[i] = MakeView(tokens, start + static_cast<int32_t>(i));
    }
    samples_.push_back(views);
  }

  // Returns the samples of each pack.
  std::vector<std::vector<size_t>> SamplesOf(Completion completion,
                                             int64_t pack_tokens) {
    std::vector<const Views*> pointers;
    for (const Views& views : samples_) pointers.push_back(&views);
    std::vector<std::vector<size_t>> samples;
    for (const Pack& pack : PlanPacks(
             terms_, pointers, completion, {.pack_tokens = pack_tokens})) {
      samples.emplace_back();
      for (const PackPart& part : pack) samples.back().push_back(part.sample);
      names_ = NamesOf(pack);
      EXPECT_EQ(ViewsOf(pack, pointers).size(), names_.size());
    }
    return samples;
  }

  std::vector<Term> terms_ = ExpandTerms(ObjectiveSection{});
  std::vector<Views> samples_;
  std::vector<ViewName> names_;  // of the last pack
};

TEST_F(PackPlanTest, ReferencesAndRolloutsAreApart) {
  AddSample(11);
  EXPECT_THAT(SamplesOf(Completion::kReference, 1000),
              ElementsAre(ElementsAre(0)));
  EXPECT_THAT(names_,
              ElementsAre(ViewName::kNoneReference, ViewName::kSelfReference));
  EXPECT_THAT(SamplesOf(Completion::kRollout, 1000),
              ElementsAre(ElementsAre(0)));
  EXPECT_THAT(names_,
              ElementsAre(ViewName::kNoneRollout, ViewName::kSelfRollout));
}

TEST_F(PackPlanTest, APackHoldsAsManySamplesAsItsTokensAllow) {
  for (const int64_t tokens : {11, 11, 51, 6, 6}) AddSample(tokens);
  // A sample has two views; they have 20, 20, 100, 10 and 10 tokens.
  EXPECT_THAT(SamplesOf(Completion::kReference, 140),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(
      SamplesOf(Completion::kReference, 40),
      ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3, 4)));
  EXPECT_THAT(SamplesOf(Completion::kReference, 1).size(), 5);
}

TEST_F(PackPlanTest, AnAnswerWithoutATokenToScoreIsInNoPack) {
  for (const int64_t tokens : {11, 11, 11}) AddSample(tokens);
  for (const ViewName view : {ViewName::kNoneRollout, ViewName::kSelfRollout}) {
    View& empty = samples_[1][static_cast<size_t>(view)];
    empty.input_ids.resize(static_cast<size_t>(empty.scored_from));
    empty.scored_count = 0;
  }
  EXPECT_THAT(SamplesOf(Completion::kRollout, 1000),
              ElementsAre(ElementsAre(0, 2)));
  EXPECT_THAT(SamplesOf(Completion::kReference, 1000),
              ElementsAre(ElementsAre(0, 1, 2)));
}

TEST_F(PackPlanTest, AnAnswerWithoutATargetIsInNoPack) {
  for (const int64_t tokens : {11, 11, 11}) AddSample(tokens);
  terms_ = {{.name = "sibling",
             .student = ViewName::kNoneRollout,
             .target = TeacherPass{WeightSet::kEma, ViewName::kSiblingRollout},
             .weight = 1.0}};
  samples_[1][static_cast<size_t>(ViewName::kSiblingRollout)] = View();
  EXPECT_THAT(SamplesOf(Completion::kRollout, 1000),
              ElementsAre(ElementsAre(0, 2)));
}

TEST_F(PackPlanTest, ATermsAbsenceIsAPacksAbsence) {
  AddSample(11);
  std::erase_if(terms_, [](const Term& term) {
    return CompletionOf(term.student) == Completion::kRollout;
  });
  EXPECT_THAT(SamplesOf(Completion::kRollout, 1000), ElementsAre());
}

TEST(PassLimitsTest, LongAnswersPassInChunks) {
  const auto weights = MakeRandomModel("qwen3");
  Config config;
  config.trainer.chunk_tokens = 64;
  EXPECT_EQ(MakePassLimits(config, *weights).chunk_tokens, 0);
  // Each token takes some kilobytes in each layer.
  config.trainer.pack_tokens = 4'000'000;
  config.rollout.max_new_tokens = 1'000'000;
  EXPECT_EQ(MakePassLimits(config, *weights).chunk_tokens, 64);
  // Settings that may change when a run goes on must not change this.
  config.trainer.activation_memory_mib = 1'000'000;
  EXPECT_EQ(MakePassLimits(config, *weights).chunk_tokens, 64);
  EXPECT_EQ(MakePassLimits(config, *weights).activation_bytes,
            int64_t{1'000'000} << 20);
}

// `dapd check` counts without LibTorch.
TEST(PassLimitsTest, ThePlanCountsTheActivationsThatALayerKeeps) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const ModelConfig model = MakeRandomModel(family)->config;
    for (const auto& [dtype, number] :
         {std::pair{at::kFloat, 4}, std::pair{at::kBFloat16, 2}}) {
      EXPECT_EQ(LayerActivationBytes(model, 16, number),
                ActivationBytesPerRow(model, 16, dtype))
          << family;
    }
  }
}

TEST(PassLimitsTest, ThePlanKeepsTheLayersThatAPassDoes) {
  const auto weights = MakeRandomModel("qwen3");
  Config config;
  config.model.precision = Precision::kFloat32;
  config.rollout.max_new_tokens = 100'000;
  config.trainer.pack_tokens = 500'000;
  config.trainer.activation_memory_mib = 2000;
  const TrainerLimits limits =
      PlanTrainerLimits(config, weights->config, std::nullopt).value();
  EXPECT_EQ(limits.kept_layers, 1);
  EXPECT_EQ(limits.kept_layers,
            NumKeptLayers(weights->config,
                          config.lora.rank,
                          at::kFloat,
                          limits.longest_pack,
                          limits.activation_bytes));
}

}  // namespace
}  // namespace dapd
