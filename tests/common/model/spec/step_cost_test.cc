#include "common/model/spec/step_cost.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

ModelConfig Qwen3(int64_t hidden, int64_t ffn, int64_t layers, int64_t heads) {
  ModelConfig model;
  model.vocab_size = 151936;
  model.hidden_size = hidden;
  model.intermediate_size = ffn;
  model.num_layers = layers;
  model.num_heads = heads;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  return model;
}

// The example of docs/scale.md has 200 tokens of prompt, 130 of template,
// answers and references of 1,024, batch 32, and only linear layers.
TEST(StepCostTest, TokensOfTheExampleAreThoseCountedByHand) {
  Config config;
  const ModelConfig model = Qwen3(2560, 9728, 36, 32);
  const SampleLengths lengths = LongestSamples(config);
  const StepWork later = CountStepWork(config, model, lengths, false);
  const StepWork early = CountStepWork(config, model, lengths, true);
  // None(y) is a part of Self(y); Self(y*) and None(y*) are separate.
  EXPECT_EQ(later.live_tokens, 32 * (2248 + 2378 + 1224));
  EXPECT_EQ(later.teacher_tokens, 32 * (4 * 2378 + 2 * 1224));
  EXPECT_EQ(early.teacher_tokens, 32 * (2 * 2378 + 2 * 1224));
  EXPECT_EQ(later.head_rows, 32 * 2 * 1024 * 5);
  EXPECT_EQ(early.head_rows, 32 * 2 * 1024 * 4);
  EXPECT_EQ(later.payload_bytes, 32.0 * 2 * 1024 * 3 * 2560 * 2);
}

TEST(StepCostTest, ScoresAreAsLargeAsTheirPayload) {
  Config config;
  config.teacher.top_k = 100;
  const ModelConfig model = Qwen3(2560, 9728, 36, 32);
  const auto bytes = [&](Payload payload) {
    config.teacher.payload = payload;
    return CountStepWork(config, model, LongestSamples(config), false)
        .payload_bytes;
  };
  constexpr double kTokens = 32.0 * 2 * 1024 * 3;
  EXPECT_EQ(bytes(Payload::kHiddenStates), kTokens * 2560 * 2);
  EXPECT_EQ(bytes(Payload::kLogits),
            kTokens * 4 * static_cast<double>(model.vocab_size));
  EXPECT_EQ(bytes(Payload::kTopK), kTokens * 100 * 8);
}

TEST(StepCostTest, OnlyTheSnapshotIsTheBaseAtFirst) {
  Config config;
  const ModelConfig model = Qwen3(2560, 9728, 36, 32);
  const auto teacher_tokens = [&](WeightSet weights, bool snapshot_is_base) {
    config.objective.terms.clear();
    for (const WeightSet read : {WeightSet::kBase, weights}) {
      config.objective.terms.push_back(
          {.target = TeacherPass{read, ViewName::kNoneRollout}});
    }
    return CountStepWork(
               config, model, LongestSamples(config), snapshot_is_base)
        .teacher_tokens;
  };
  EXPECT_EQ(teacher_tokens(WeightSet::kSnapshot, true), 32 * 1224);
  EXPECT_EQ(teacher_tokens(WeightSet::kSnapshot, false), 2 * 32 * 1224);
  EXPECT_EQ(teacher_tokens(WeightSet::kEma, true), 2 * 32 * 1224);
  EXPECT_EQ(teacher_tokens(WeightSet::kLive, true), 2 * 32 * 1224);
}

// An answer and a reference are equally long here.
TEST(StepCostTest, AStepOfGkdCostsTheMeanOfItsTwoKinds) {
  Config config;
  config.objective.preset = "gkd";
  config.rollout.max_new_tokens = config.objective.max_reference_tokens = 1024;
  const ModelConfig model = Qwen3(2560, 9728, 36, 32);
  const auto work = [&](double reference_share) {
    config.objective.gkd.reference_share = reference_share;
    return CountStepWork(config, model, LongestSamples(config), false);
  };
  const StepWork answers = work(0.0);
  const StepWork mean = work(0.25);
  const StepWork references = work(1.0);
  EXPECT_EQ(references.decode_steps, 0.0) << "nothing is sampled";
  EXPECT_DOUBLE_EQ(mean.decode_steps, 0.75 * answers.decode_steps);
  EXPECT_DOUBLE_EQ(mean.prefill_flops, 0.75 * answers.prefill_flops);
  EXPECT_EQ(mean.decode_flops, answers.decode_flops) << "of one round";
  EXPECT_DOUBLE_EQ(mean.teacher_tokens, answers.teacher_tokens);
  EXPECT_DOUBLE_EQ(mean.live_tokens, references.live_tokens);
  EXPECT_GT(mean.live_tokens, 0.0);
}

// The sibling and the feedback come behind a prompt of 200 tokens and a
// template of 130, and before an answer of 1,024.
TEST(StepCostTest, ASelfTeacherMayReadASiblingAndFeedbackThatQuotesAnAnswer) {
  Config config;
  config.objective.preset = "sdpo";
  const auto tokens = [&](int64_t group_size, FeedbackRule feedback) {
    config.rollout.group_size = group_size;
    config.objective.sdpo.feedback = feedback;
    return LongestSamples(config).at("sibling_rollout").tokens;
  };
  EXPECT_EQ(tokens(8, FeedbackRule::kAlways), 330 + 2 * 1024)
      << "it quotes none";
  config.prompts.feedback_wrong = "{answer} is wrong";
  EXPECT_EQ(tokens(8, FeedbackRule::kNever), 330 + 2 * 1024);
  EXPECT_EQ(tokens(8, FeedbackRule::kWithoutSibling), 330 + 2 * 1024);
  EXPECT_EQ(tokens(8, FeedbackRule::kAlways), 330 + 3 * 1024);
  EXPECT_EQ(tokens(1, FeedbackRule::kAlways), 330 + 2 * 1024);
  EXPECT_EQ(tokens(1, FeedbackRule::kNever), 330 + 2 * 1024);
}

TEST(StepCostTest, WithATemplateNothingOfSelfIsShared) {
  Config config;
  config.objective.self_rollout = SelfRollout::kTemplate;
  const StepWork work = CountStepWork(
      config, Qwen3(2560, 9728, 36, 32), LongestSamples(config), false);
  EXPECT_EQ(work.live_tokens, 32 * (1224 + 2378 + 1224 + 2378));
}

// The work has only linear layers and the head, as published estimates count
// it; attention and adapters add about a tenth.
TEST(StepCostTest, WorkOfTheFivePublishedSizes) {
  struct Size {
    ModelConfig model;
    double petaflops;
  };
  const std::vector<Size> sizes = {{Qwen3(2048, 6144, 28, 16), 2.9},
                                   {Qwen3(2560, 9728, 36, 32), 7.2},
                                   {Qwen3(4096, 12288, 36, 32), 13.7},
                                   {Qwen3(5120, 17408, 40, 40), 25.7},
                                   {Qwen3(5120, 25600, 64, 64), 59.7}};
  Config config;
  config.lora.targets.clear();
  for (const Size& size : sizes) {
    const SampleLengths lengths = LongestSamples(config);
    const StepWork work = CountStepWork(config, size.model, lengths, false);
    // A model without heads would have no attention, but the projections of q
    // and o are needed: so attention's work is counted and subtracted.
    ModelConfig wide = size.model;
    const double layers_heads =
        static_cast<double>(wide.num_layers * wide.num_heads * wide.head_dim);
    const double live = 2248.0 * 2248 + 2378.0 * 2378 + 1224.0 * 1224;
    const double teacher = 4 * 2378.0 * 2378 + 2 * 1224.0 * 1224;
    const double attention = 32 * 2 * layers_heads * (4.5 * live + teacher);
    const double linear = work.trainer_flops + work.teacher_flops - attention;
    EXPECT_NEAR(linear / 1e15, size.petaflops, 0.005 * size.petaflops + 0.05);
    EXPECT_LT(attention, 0.45 * linear);
  }
}

TEST(StepCostTest, DecodingIsBoundByWhatIsSlower) {
  Config config;
  config.rollout.slots = 32;
  const ModelConfig model = Qwen3(2560, 9728, 36, 32);
  const StepWork work =
      CountStepWork(config, model, LongestSamples(config), false);
  EXPECT_EQ(work.decode_steps, 1024);
  const HardwareRates memory_bound{1e18, 3e12, 1e18};
  EXPECT_NEAR(PredictStep(config, work, memory_bound).rollout,
              1024 * work.decode_bytes / 3e12,
              1e-3);
  const HardwareRates compute_bound{1e12, 1e18, 1e18};
  EXPECT_NEAR(PredictStep(config, work, compute_bound).rollout,
              1024 * work.decode_flops / 1e12 + work.prefill_flops / 1e12,
              1e-6);
}

// Each of a worker's GPUs reads its share of the layers and waits for two sums
// in each of the 36 layers.
TEST(StepCostTest, AWorkerOfSeveralGpusReadsLessAndWaitsForSums) {
  Config config;
  const ModelConfig model = Qwen3(2560, 9728, 36, 32);
  const auto work = [&](int64_t tensor_parallel) {
    config.rollout.tensor_parallel = tensor_parallel;
    return CountStepWork(config, model, LongestSamples(config), false);
  };
  EXPECT_EQ(work(1).decode_sums, 0);
  EXPECT_EQ(work(2).decode_sums, 72);
  EXPECT_LT(work(2).decode_bytes, 0.6 * work(1).decode_bytes);
  HardwareRates rates{1e18, 3e12, 1e18};
  rates.sum_seconds = 1e-3;
  EXPECT_NEAR(PredictStep(config, work(2), rates).rollout,
              1024 * (work(2).decode_bytes / 3e12 + 72e-3),
              1e-3);
}

TEST(StepCostTest, FewerSlotsThanAnswersTakeRounds) {
  Config config;
  config.rollout.slots = 8;
  config.run.rollout_workers = 2;
  const StepWork work = CountStepWork(
      config, Qwen3(1024, 3072, 28, 16), LongestSamples(config), false);
  EXPECT_EQ(work.decode_steps, 2 * 1024);
}

TEST(StepCostTest, RanksShareTheWorkAndPayForTheSum) {
  Config config;
  const ModelConfig model = Qwen3(2560, 9728, 36, 32);
  const StepWork alone =
      CountStepWork(config, model, LongestSamples(config), false);
  EXPECT_EQ(alone.reduce_bytes, 0.0);
  config.trainer.ranks = 4;
  const StepWork together =
      CountStepWork(config, model, LongestSamples(config), false);
  EXPECT_EQ(together.reduce_bytes, 1.5 * together.adapter_bytes);
  const HardwareRates rates{4e14, 3e12, 1e10};
  Config single;
  EXPECT_NEAR(PredictStep(config, together, rates).trainer * 4,
              PredictStep(single, alone, rates).trainer,
              1e-9);
}

}  // namespace
}  // namespace dapd
