// Simulates an evaluation on GPUs: the engine as it is, over a backend that
// computes nothing and whose time is calculated from the bytes that a step
// reads and three rates. It shows what the engine's policy costs (answers that
// are computed again or moved to the host), and it is the arithmetic behind the
// hours in docs/evaluation.md. It measures no GPU.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/engine.h"

namespace dapd {
namespace {

constexpr int64_t kPrompt = 300;
constexpr int64_t kLongest = 38'912;
constexpr int32_t kEnd = 1;
constexpr int64_t kStepsAtATime = 4;
constexpr int64_t kTokensAhead = 12;  // cuda_decode_backend.cc

// Qwen3-4B in bfloat16 on an H100, with the rates that its kernels aim at.
struct Rates {
  double weights = 8.04e9;    // bytes that a step reads
  double token = 147'456;     // bytes of a token's keys and values
  double products = 2.5e12;   // bytes of weights in a second
  double attention = 2.9e12;  // bytes of keys and values in a second
  double other = 0.4e-3;      // seconds of a step: norms, sampling, the head
  double prefill = 400e12;    // operations in a second
  double parameters = 3.6e9;  // of the layers
  double copies = 50e9;       // bytes in a second to and from the host
};

// The rates that were measured (docs/performance.md, row G2).
constexpr Rates kMeasured = {
    .products = 1.99e12, .attention = 2.28e12, .other = 0.5e-3};

// Returns `count` lengths in a fixed order: the quantiles of a lognormal
// distribution with sigma 0.55, clipped to [1500, kLongest], whose mean is
// `mean`.
std::vector<int64_t> Lengths(int64_t count, double mean) {
  const auto quantile = [](double part) {
    double low = -6;
    double high = 6;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (std::erfc(-middle / std::sqrt(2.0)) / 2 < part ? low : high) = middle;
    }
    return low;
  };
  const auto draw = [&](double median) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < count; ++i) {
      const double part =
          (static_cast<double>(i) + 0.5) / static_cast<double>(count);
      lengths.push_back(std::clamp<int64_t>(
          static_cast<int64_t>(median * std::exp(0.55 * quantile(part))),
          1500,
          kLongest));
    }
    return lengths;
  };
  double low = mean / 2;
  double high = mean;
  for (int i = 0; i < 30; ++i) {
    const std::vector<int64_t> lengths = draw((low + high) / 2);
    const double found = std::accumulate(lengths.begin(), lengths.end(), 0.0) /
                         static_cast<double>(count);
    (found < mean ? low : high) = (low + high) / 2;
  }
  std::vector<int64_t> lengths = draw(low);
  std::mt19937_64 random(1);
  for (size_t i = lengths.size() - 1; i > 0; --i) {
    std::swap(lengths[i], lengths[random() % (i + 1)]);
  }
  return lengths;
}

// A GPU with a clock. Its answers end where `lengths` says, by
// SamplingKey::example, which the engine does not know.
class TimedBackend final : public DecodeBackend {
 public:
  TimedBackend(int64_t slots,
               const std::vector<int64_t>& lengths,
               const Rates& rates,
               double& seconds)
      : lengths_(lengths), rates_(rates), seconds_(seconds) {
    config_.vocab_size = 8;
    config_.max_positions = 40'960;
    config_.eos_token_ids = {kEnd};
    slots_.resize(static_cast<size_t>(slots));
  }

  const ModelConfig& config() const override { return config_; }
  int64_t num_slots() const override {
    return static_cast<int64_t>(slots_.size());
  }
  int64_t KvBytes(int64_t tokens) const override {
    return (tokens + 127) / 128 * 128 * static_cast<int64_t>(rates_.token);
  }
  int64_t StepPositions() const override { return kTokensAhead; }
  int64_t DefaultKvBudget() const override { return 0; }
  int64_t DefaultSwapBudget() const override {
    return std::numeric_limits<int64_t>::max();
  }
  void SetAdapter(std::shared_ptr<const Adapter> /*adapter*/) override {}
  bool Start(int64_t slot, DecodeRequest request) override {
    seconds_ += 2 * rates_.parameters * kPrompt / rates_.prefill;
    slots_[static_cast<size_t>(slot)] = {
        .length = lengths_[request.key.example], .runs = true};
    return true;
  }
  bool Reserve(int64_t /*slot*/, int64_t /*tokens*/) override { return true; }
  void Stop(int64_t slot) override {
    slots_[static_cast<size_t>(slot)].runs = false;
  }
  int64_t SwapOut(int64_t slot, uint64_t key) override {
    kept_[key] = slots_[static_cast<size_t>(slot)];
    Stop(slot);
    return Copy(kept_[key]);
  }
  bool SwapIn(int64_t slot, uint64_t key, int64_t /*tokens*/) override {
    slots_[static_cast<size_t>(slot)] = kept_.at(key);
    Copy(kept_.at(key));
    kept_.erase(key);
    return true;
  }

  std::vector<DecodedToken> Step() override {
    std::vector<DecodedToken> tokens;
    int64_t context = 0;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      Sequence& sequence = slots_[slot];
      if (!sequence.runs) continue;
      context += kPrompt + sequence.tokens;
      for (int64_t i = 0; i < kStepsAtATime; ++i) {
        if (sequence.tokens == sequence.length) break;
        ++sequence.tokens;
        tokens.push_back({static_cast<int64_t>(slot),
                          sequence.tokens == sequence.length ? kEnd : 2,
                          -1.0F});
      }
    }
    seconds_ +=
        static_cast<double>(kStepsAtATime) *
        (rates_.weights / rates_.products + rates_.other +
         static_cast<double>(context) * rates_.token / rates_.attention);
    return tokens;
  }
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override {
    return std::vector<float>(ids.size() - 1);
  }

 private:
  struct Sequence {
    int64_t length = 0;
    int64_t tokens = 0;
    bool runs = false;
  };

  int64_t Copy(const Sequence& sequence) {
    const int64_t bytes = KvBytes(kPrompt + sequence.tokens);
    seconds_ += static_cast<double>(bytes) / rates_.copies;
    return bytes;
  }

  const std::vector<int64_t>& lengths_;
  const Rates rates_;
  double& seconds_;
  ModelConfig config_;
  std::vector<Sequence> slots_;
  std::map<uint64_t, Sequence> kept_;
};

struct Evaluation {
  double seconds = 0;
  int64_t tokens = 0;  // returned
  int64_t answers = 0;
  int64_t restarts = 0;
  MemoryCost cost;
};

// Answers as many prompts as there are lengths on `gpus` GPUs, each of which
// takes the next prompt when it has a free place.
Evaluation Evaluate(const std::vector<int64_t>& lengths,
                    size_t gpus,
                    int64_t slots,
                    const EngineOptions& options,
                    const Rates& rates = {}) {
  std::vector<double> clocks(gpus, 0.0);
  std::vector<std::unique_ptr<GenerationEngine>> engines;
  for (double& clock : clocks) {
    engines.push_back(std::make_unique<GenerationEngine>(
        std::make_unique<TimedBackend>(slots, lengths, rates, clock), options));
  }
  uint64_t next = 0;
  const auto submit = [&](GenerationEngine& engine) {
    if (next == lengths.size() || engine.num_free() == 0) return false;
    EXPECT_TRUE(engine
                    .Submit(next,
                            {.prompt_ids = std::vector<int32_t>(kPrompt, 3),
                             .sampling = {.max_new_tokens = kLongest},
                             .key = {.example = static_cast<uint32_t>(next)}})
                    .ok());
    ++next;
    return true;
  };
  for (bool any = true; any;) {
    any = false;
    for (const auto& engine : engines) any = submit(*engine) || any;
  }
  Evaluation evaluation;
  while (true) {
    size_t first = gpus;  // of the GPUs at work, the furthest behind
    for (size_t gpu = 0; gpu < gpus; ++gpu) {
      if (engines[gpu]->num_running() == 0) continue;
      if (first == gpus || clocks[gpu] < clocks[first]) first = gpu;
    }
    if (first == gpus) break;
    for (const SampledToken& token : engines[first]->Step()) {
      EXPECT_TRUE(token.error.ok()) << token.error;
      ++evaluation.tokens;
      if (token.finish_reason != FinishReason::kNone) ++evaluation.answers;
    }
    while (submit(*engines[first])) {
    }
  }
  evaluation.seconds = *std::ranges::max_element(clocks);
  for (const auto& engine : engines) {
    evaluation.restarts += engine->kv_use().restarts;
    evaluation.cost += engine->kv_use().cost;
  }
  std::printf(
      "%zu GPUs, %d slots: %.2f h (%.1f min), %.0f tokens/s, %d swaps of "
      "%.1f GiB in all, %d restarts, %.2f %% computed again\n",
      gpus,
      static_cast<int>(slots),
      evaluation.seconds / 3600,
      evaluation.seconds / 60,
      static_cast<double>(evaluation.tokens) / evaluation.seconds,
      static_cast<int>(evaluation.cost.swaps),
      static_cast<double>(evaluation.cost.swapped_bytes) / (1 << 30),
      static_cast<int>(evaluation.restarts),
      100.0 * static_cast<double>(evaluation.cost.recomputed_tokens) /
          static_cast<double>(evaluation.tokens));
  return evaluation;
}

// 90 problems with 12 answers of 16,140 tokens, and 66 GiB for keys and values.
class EvaluationTimeTest : public testing::Test {
 protected:
  static constexpr int64_t kAnswers = 90 * 12;
  static constexpr int64_t kKvMemory = int64_t{66} << 30;

  const std::vector<int64_t> lengths_ = Lengths(kAnswers, 16'140);
  const int64_t tokens_ =
      std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
};

TEST_F(EvaluationTimeTest, NoTokenIsComputedTwice) {
  for (const int64_t slots : {32, 64}) {
    const Evaluation evaluation =
        Evaluate(lengths_, /*gpus=*/1, slots, {.kv_memory_bytes = kKvMemory});
    EXPECT_EQ(evaluation.answers, kAnswers);
    EXPECT_EQ(evaluation.tokens, tokens_);
    EXPECT_EQ(evaluation.cost.recomputed_tokens, 0);
    EXPECT_EQ(evaluation.restarts, 0);
    EXPECT_LT(evaluation.seconds, 3.2 * 3600);
    // Moves to the host and back take less than a hundredth of the time.
    EXPECT_LT(
        2 * static_cast<double>(evaluation.cost.swapped_bytes) / Rates().copies,
        evaluation.seconds / 100);
  }
}

TEST_F(EvaluationTimeTest, FewAnswersAreMovedToTheHost) {
  const Evaluation evaluation = Evaluate(
      lengths_, /*gpus=*/1, /*slots=*/32, {.kv_memory_bytes = kKvMemory});
  EXPECT_LT(evaluation.cost.swaps, kAnswers / 20);
}

// As the engine was with half of the memory: answers begin again.
TEST_F(EvaluationTimeTest, WithoutTheHostManyTokensAreComputedTwice) {
  const Evaluation evaluation =
      Evaluate(lengths_,
               /*gpus=*/1,
               /*slots=*/32,
               {.kv_memory_bytes = int64_t{35} << 30, .swap_memory_bytes = 0});
  EXPECT_EQ(evaluation.tokens, tokens_);
  EXPECT_GT(evaluation.cost.recomputed_tokens, 0);
  EXPECT_GT(evaluation.restarts, 0);
}

TEST_F(EvaluationTimeTest, AtTheMeasuredRatesNoTokenIsComputedTwiceEither) {
  for (const size_t gpus : {1, 8}) {
    const Evaluation evaluation = Evaluate(lengths_,
                                           gpus,
                                           /*slots=*/32,
                                           {.kv_memory_bytes = kKvMemory},
                                           kMeasured);
    EXPECT_EQ(evaluation.tokens, tokens_);
    EXPECT_EQ(evaluation.cost.recomputed_tokens, 0);
  }
}

TEST_F(EvaluationTimeTest, EightGpusTakeLittleMoreThanAnEighth) {
  for (const int64_t slots : {32, 64}) {
    const Evaluation evaluation =
        Evaluate(lengths_, /*gpus=*/8, slots, {.kv_memory_bytes = kKvMemory});
    EXPECT_EQ(evaluation.tokens, tokens_);
    EXPECT_EQ(evaluation.cost.recomputed_tokens, 0);
    EXPECT_LT(evaluation.seconds, 27 * 60);
  }
}

}  // namespace
}  // namespace dapd
