// Compares the CUDA sampler, on a host that simulates the device, token by
// token with SampleToken, which sorts the vocabulary in float64.

#include "common/kernels/cuda/sampling.h"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <span>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/sampling.h"
#include "tests/fakes/cuda/kernel_inputs.h"

namespace dapd {
namespace {

using fake::DeviceBuffer;
using fake::Elements;
using fake::InSeveralOrders;
using fake::RandomNumbers;

constexpr uint64_t kSeed = 5;

CudaSequence SequenceOf(const SamplingParams& params) {
  return {.seed = kSeed,
          .step = 1,
          .example = 2,
          .sample = 3,
          .top_k = static_cast<int32_t>(params.top_k),
          .temperature = params.temperature,
          .top_p = params.top_p,
          .max_new_tokens = 1000};
}

double UniformOf(uint32_t token) {
  return KeyedUniform({kSeed, 1, 2, 3}, token);
}

// Row r of the batch has slot r.
struct Batch {
  int64_t vocab;
  int64_t num_tokens;
  std::vector<float> values;
  DeviceBuffer<float> logits;
  DeviceBuffer<int32_t> slot_of_row;
  DeviceBuffer<int32_t> positions;
  DeviceBuffer<int32_t> tokens;
  DeviceBuffer<CudaSequence> sequences;
  DeviceBuffer<CudaSampled> sampled;
  DeviceBuffer<int32_t> end_tokens;
  DeviceBuffer<char> scratch;

  Batch(std::vector<float> all_logits,
        int64_t vocab_size,
        int64_t num_known,
        const std::vector<CudaSequence>& all_sequences,
        const std::vector<int32_t>& ends = {})
      : vocab(vocab_size),
        num_tokens(num_known),
        values(std::move(all_logits)),
        logits("logits", values),
        slot_of_row("slot_of_row", Slots(all_sequences.size())),
        positions("positions", std::vector<int32_t>(all_sequences.size(), 7)),
        tokens("tokens", Elements(all_sequences.size())),
        sequences("sequences", all_sequences),
        sampled("sampled",
                Elements(all_sequences.size() * size_t{kSampledRing})),
        end_tokens("end_tokens", ends),
        scratch("scratch",
                Elements(DapdCudaSampleScratch(
                    static_cast<int64_t>(all_sequences.size()), vocab))) {}

  static std::vector<int32_t> Slots(size_t rows) {
    std::vector<int32_t> slots;
    for (size_t i = 0; i < rows; ++i) slots.push_back(static_cast<int32_t>(i));
    return slots;
  }

  SampleArgs Args() const {
    return {.num_rows = static_cast<int64_t>(slot_of_row.size()),
            .slot_of_row = slot_of_row.data(),
            .positions = positions.data(),
            .tokens = tokens.data(),
            .sequences = sequences.data(),
            .sampled = sampled.data(),
            .logits = logits.data(),
            .scratch = scratch.data(),
            .vocab = vocab,
            .num_tokens = num_tokens,
            .end_tokens = end_tokens.data(),
            .num_end_tokens = static_cast<int64_t>(end_tokens.size())};
  }
  std::span<const float> Row(size_t row) const {
    return {values.data() + row * static_cast<size_t>(vocab),
            static_cast<size_t>(vocab)};
  }
};

const std::vector<SamplingParams>& AllParams() {
  static const auto* params = new std::vector<SamplingParams>{{0.0, 0, 1.0},
                                                              {1.1, 20, 0.95},
                                                              {1.0, 64, 1.0},
                                                              {0.7, 1, 0.5},
                                                              {1.0, 0, 1.0},
                                                              {1.1, 0, 0.95},
                                                              {0.7, 500, 0.9},
                                                              {1e-50, 0, 0.95},
                                                              {2.0, 100, 1e-9}};
  return *params;
}

void ExpectSampleTokens(int64_t vocab, int64_t num_tokens, float spread) {
  std::vector<CudaSequence> sequences;
  for (const SamplingParams& params : AllParams()) {
    sequences.push_back(SequenceOf(params));
  }
  const auto rows = static_cast<int64_t>(sequences.size());
  const Batch batch(RandomNumbers<float>(rows * vocab, 3, spread),
                    vocab,
                    num_tokens,
                    sequences);
  const SampleArgs args = batch.Args();
  for (uint32_t draw = 0; draw < 3; ++draw) {
    ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
    for (size_t row = 0; row < sequences.size(); ++row) {
      const int32_t expected = SampleToken(
          batch.Row(row), num_tokens, AllParams()[row], UniformOf(draw));
      const CudaSampled sampled =
          batch.sampled.data()[row * size_t{kSampledRing} + draw];
      ASSERT_EQ(sampled.token, expected)
          << "vocabulary " << vocab << ", row " << row << ", draw " << draw;
      ASSERT_EQ(batch.tokens.data()[row], expected);
      ASSERT_EQ(batch.positions.data()[row], 8 + static_cast<int32_t>(draw));
      ASSERT_NEAR(
          sampled.logprob, LogProbability(batch.Row(row), expected), 1e-5);
    }
  }
}

TEST(CudaSamplingOnHostTest, TokensAreThoseOfTheSortedVocabulary) {
  struct Case {
    int64_t vocab, num_tokens;
  };
  for (const Case& c : {Case{1, 1},
                        Case{2, 1},
                        Case{301, 300},
                        Case{8192, 8192},
                        Case{8195, 8195},
                        Case{8300, 8190},
                        Case{17'003, 16'999}}) {
    for (const float spread : {0.0F, 3.0F}) {
      InSeveralOrders(
          [&] { ExpectSampleTokens(c.vocab, c.num_tokens, spread); });
    }
  }
}

TEST(CudaSamplingOnHostTest, ASliceMayHaveFewerTokensThanTopK) {
  for (const int64_t rest : {1, 63, 64}) {
    const int64_t vocab = 8192 + rest;
    const SamplingParams params{1.0, 64, 1.0};
    InSeveralOrders([&] {
      const Batch batch(
          RandomNumbers<float>(vocab, 1), vocab, vocab, {SequenceOf(params)});
      const SampleArgs args = batch.Args();
      ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
      ASSERT_EQ(batch.tokens.data()[0],
                SampleToken(batch.Row(0), vocab, params, UniformOf(0)));
    });
  }
}

TEST(CudaSamplingOnHostTest, PaddingThatIsFarAboveAllTokensIsNeverSampled) {
  constexpr int64_t kVocab = 400;
  constexpr int64_t kKnown = 390;
  std::vector<CudaSequence> sequences;
  for (const SamplingParams& params : AllParams()) {
    sequences.push_back(SequenceOf(params));
  }
  const auto rows = static_cast<int64_t>(sequences.size());
  std::vector<float> logits = RandomNumbers<float>(rows * kVocab, 3);
  for (int64_t row = 0; row < rows; ++row) logits[row * kVocab + 395] = 500.0F;
  const Batch batch(logits, kVocab, kKnown, sequences);
  const SampleArgs args = batch.Args();
  ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
  for (size_t row = 0; row < sequences.size(); ++row) {
    const int32_t expected =
        SampleToken(batch.Row(row), kKnown, AllParams()[row], UniformOf(0));
    EXPECT_EQ(batch.tokens.data()[row], expected) << row;
    EXPECT_NEAR(batch.sampled.data()[row * size_t{kSampledRing}].logprob,
                LogProbability(batch.Row(row), expected),
                1e-3);
  }
}

// Only one token may be drawn. By mass, the kernel adds the total, and in each
// of two descents a count and two parts of a weight for the only digit that it
// looks at.
TEST(CudaSamplingOnHostTest, ThreadsDoNotQueueForTheTotal) {
  constexpr int64_t kVocab = 400;
  const Batch batch(RandomNumbers<float>(kVocab, 3),
                    kVocab,
                    /*num_known=*/1,
                    {SequenceOf({1.0, 0, 0.9})});
  const SampleArgs args = batch.Args();
  fake::TakeTraffic();
  ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
  const fake::Traffic traffic = fake::TakeTraffic();
  EXPECT_EQ(batch.tokens.data()[0], 0);
  std::cout << traffic.atomic_additions << " atomic additions\n";
  EXPECT_LE(traffic.atomic_additions, 512U / 32 + 2 * 3);
}

// The likeliest token has a mass of 2^40 units and each other token 0.95 *
// 2^32. The sum of two other masses carries into the upper 32 bits, and all of
// them together are 30 times the likeliest token's mass.
TEST(CudaSamplingOnHostTest, MassesThatCarryInto32MoreBitsAreAllCounted) {
  constexpr int64_t kVocab = 8192;
  for (const SamplingParams& params :
       {SamplingParams{1.0, 0, 1.0}, SamplingParams{1.0, 0, 0.6}}) {
    InSeveralOrders([&] {
      std::vector<float> logits(kVocab, -8.0F * std::log(2.0F) - 0.05F);
      logits[4321] = 0.0F;
      const Batch batch(logits, kVocab, kVocab, {SequenceOf(params)});
      const SampleArgs args = batch.Args();
      for (uint32_t draw = 0; draw < 8; ++draw) {
        ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
        ASSERT_EQ(batch.tokens.data()[0],
                  SampleToken(batch.Row(0), kVocab, params, UniformOf(draw)))
            << "top_p " << params.top_p << ", draw " << draw;
      }
    });
  }
}

// The tokens without a mass share the first digit of the three tokens that may
// be drawn.
TEST(CudaSamplingOnHostTest, TokensWithoutAMassAreNeitherCountedNorDrawn) {
  constexpr int64_t kVocab = 5000;
  const SamplingParams params{1.0, 0, 0.99};
  std::vector<float> logits;
  for (int64_t i = 0; i < kVocab; ++i) {
    logits.push_back(40.0F + 0.01F * static_cast<float>(i));
  }
  for (const int64_t at : {10, 2000, 4990}) logits[at] = 120.0F;
  InSeveralOrders([&] {
    const Batch batch(logits, kVocab, kVocab, {SequenceOf(params)});
    const SampleArgs args = batch.Args();
    for (uint32_t draw = 0; draw < 8; ++draw) {
      fake::TakeTraffic();
      ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
      ASSERT_EQ(batch.tokens.data()[0],
                SampleToken(batch.Row(0), kVocab, params, UniformOf(draw)));
      // Each of the three tokens adds two parts of its mass and a count, in two
      // descents of eight digits. The rest adds the total.
      EXPECT_LE(fake::TakeTraffic().atomic_additions,
                512U / 32 + 3 * 3 * 2 * 8);
    }
  });
}

TEST(CudaSamplingOnHostTest, ARowEndsAtItsEndTokenOrItsLimit) {
  constexpr int64_t kVocab = 50;
  std::vector<float> logits(4 * kVocab, 0.0F);
  logits[0 * kVocab + 9] = 5.0F;  // ends
  logits[1 * kVocab + 8] = 5.0F;  // goes on
  logits[2 * kVocab + 8] = 5.0F;  // has no tokens left
  logits[3 * kVocab + 9] = 5.0F;  // is forced, so that nothing ends it
  std::vector<CudaSequence> sequences(4, SequenceOf({0.0, 0, 1.0}));
  sequences[2].num_sampled = 39;
  sequences[2].max_new_tokens = 40;
  const DeviceBuffer<int32_t> forced("forced", {9, 3});
  sequences[3].forced = forced.data();
  const Batch batch(logits, kVocab, kVocab, sequences, {7, 9});
  const SampleArgs args = batch.Args();
  ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
  EXPECT_EQ(batch.slot_of_row.Read(), (std::vector<int32_t>{-1, 1, -1, 3}));
  EXPECT_EQ(batch.tokens.Read(), (std::vector<int32_t>{9, 8, 8, 9}));
  EXPECT_EQ(batch.sampled.data()[2 * kSampledRing + 39 % kSampledRing].token,
            8);
  const std::vector<int32_t> before = batch.positions.Read();
  ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
  EXPECT_EQ(batch.tokens.Read(), (std::vector<int32_t>{9, 8, 8, 3}));
  EXPECT_EQ(batch.positions.Read(),
            (std::vector<int32_t>{
                before[0], before[1] + 1, before[2], before[3] + 1}));
}

TEST(CudaSamplingOnHostTest, LogitsThatAreNotFiniteEndTheirRowOnly) {
  constexpr int64_t kVocab = 8200;
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::nanf("")}) {
    std::vector<float> logits = RandomNumbers<float>(2 * kVocab, 1);
    logits[kVocab + 8199] = bad;  // in the second row
    const Batch batch(logits,
                      kVocab,
                      kVocab,
                      {SequenceOf({1.0, 0, 1.0}), SequenceOf({1.0, 0, 1.0})});
    const SampleArgs args = batch.Args();
    ASSERT_KERNEL_RUNS(DapdCudaSample(&args, nullptr));
    EXPECT_EQ(batch.tokens.data()[0],
              SampleToken(batch.Row(0), kVocab, {1.0, 0, 1.0}, UniformOf(0)));
    EXPECT_EQ(batch.tokens.data()[1], -1);
    EXPECT_EQ(batch.slot_of_row.Read(), (std::vector<int32_t>{0, -1}));
  }
}

}  // namespace
}  // namespace dapd
