// Implements a DecodeBackend without a model. It counts KV memory and checks
// that the engine fulfils the conditions of the interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/decode_backend.h"

namespace dapd {

// Counts of a CountingBackend.
struct Counts {
  int64_t most_bytes = 0;
  int64_t most_running = 0;
  int64_t kept = 0;                    // sequences on the host
  std::map<uint32_t, int64_t> starts;  // by SamplingKey::example
};

struct CountingOptions {
  int64_t slots = 4;
  bool resumes_from_the_start = true;
  int64_t tokens_a_step = 1;
  int64_t host_memory = 0;  // 0: nothing is kept
  int64_t memory = std::numeric_limits<int64_t>::max();
  bool drifts = false;  // every start gives other tokens
  // A step over more sequences than this runs out of memory half-way.
  int64_t side_by_side = std::numeric_limits<int64_t>::max();
  std::optional<uint32_t> hopeless;  // every step with this example runs out of
                                     // memory, too
};

// A position takes a byte, and a page has four positions. The answer to example
// e is e * 1000, e * 1000 + 1, ...
class CountingBackend final : public DecodeBackend {
 public:
  CountingBackend(const CountingOptions& options, Counts& counts)
      : options_(options), counts_(counts) {
    config_.vocab_size = 1 << 20;
    config_.max_positions = 1 << 20;
    slots_.resize(static_cast<size_t>(options.slots));
  }

  static int32_t TokenAt(uint32_t example, int64_t index) {
    return static_cast<int32_t>(example * 1000 + index);
  }

  const ModelConfig& config() const override { return config_; }
  int64_t num_slots() const override { return options_.slots; }
  int64_t KvBytes(int64_t tokens) const override {
    return (tokens + 3) / 4 * 4;
  }
  int64_t StepPositions() const override { return options_.tokens_a_step - 1; }
  int64_t DefaultKvBudget() const override {
    return std::numeric_limits<int64_t>::max();
  }
  void SetAdapter(std::shared_ptr<const Adapter> /*adapter*/) override {}

  bool Start(int64_t slot, DecodeRequest request) override {
    return Begin(slot, std::move(request), 0);
  }
  bool Resume(int64_t slot,
              DecodeRequest request,
              std::vector<int32_t> answer) override {
    EXPECT_FALSE(answer.empty());
    for (size_t i = 0; i < answer.size(); ++i) {
      EXPECT_EQ(answer[i],
                TokenAt(request.key.example, static_cast<int64_t>(i)));
    }
    return Begin(slot,
                 std::move(request),
                 options_.resumes_from_the_start
                     ? 0
                     : static_cast<int64_t>(answer.size()));
  }
  bool ResumesFromTheStart() const override {
    return options_.resumes_from_the_start;
  }
  bool Reserve(int64_t slot, int64_t tokens) override {
    Sequence& sequence = *slots_[static_cast<size_t>(slot)];
    EXPECT_LE(tokens, sequence.request.MaxTokens());
    return Take(sequence, KvBytes(tokens));
  }
  void Stop(int64_t slot) override {
    std::optional<Sequence>& sequence = slots_[static_cast<size_t>(slot)];
    if (sequence.has_value()) bytes_ -= sequence->bytes;
    sequence.reset();
  }

  int64_t DefaultSwapBudget() const override { return options_.host_memory; }
  int64_t SwapOut(int64_t slot, uint64_t key) override {
    std::optional<Sequence>& sequence = slots_[static_cast<size_t>(slot)];
    if (sequence->num_tokens == 0) {
      Stop(slot);
      return 0;
    }
    EXPECT_FALSE(kept_.contains(key));
    const int64_t bytes = KvBytes(Computed(*sequence));
    host_bytes_ += bytes;
    EXPECT_LE(host_bytes_, options_.host_memory);
    kept_.emplace(key, *sequence);
    counts_.kept = static_cast<int64_t>(kept_.size());
    Stop(slot);
    return bytes;
  }
  bool SwapIn(int64_t slot, uint64_t key, int64_t tokens) override {
    EXPECT_FALSE(slots_[static_cast<size_t>(slot)].has_value());
    Sequence sequence = kept_.at(key);
    EXPECT_GE(tokens, Need(sequence));
    sequence.bytes = 0;
    if (!Take(sequence, KvBytes(tokens))) return false;
    slots_[static_cast<size_t>(slot)] = std::move(sequence);
    DropSwapped(key);
    return true;
  }
  void DropSwapped(uint64_t key) override {
    host_bytes_ -= KvBytes(Computed(kept_.at(key)));
    kept_.erase(key);
    counts_.kept = static_cast<int64_t>(kept_.size());
  }

  std::vector<DecodedToken> Step() override {
    std::vector<DecodedToken> tokens;
    int64_t running = 0;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot].has_value()) continue;
      ++running;
      Sequence& sequence = *slots_[slot];
      TORCH_CHECK_WITH(OutOfMemoryError,
                       running <= options_.side_by_side &&
                           sequence.request.key.example != options_.hopeless,
                       "no memory for the ",
                       running,
                       "-th of a step");
      EXPECT_LE(KvBytes(Need(sequence)), sequence.bytes);
      for (int64_t i = 0; i < options_.tokens_a_step; ++i) {
        const uint32_t example = sequence.request.key.example;
        const int64_t drift = options_.drifts ? counts_.starts[example] - 1 : 0;
        tokens.push_back({static_cast<int64_t>(slot),
                          TokenAt(example, sequence.num_tokens + drift),
                          -1.0F});
        ++sequence.num_tokens;
      }
    }
    counts_.most_running = std::max(counts_.most_running, running);
    return tokens;
  }
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override {
    return std::vector<float>(ids.size() - 1);
  }

 private:
  struct Sequence {
    DecodeRequest request;
    int64_t num_tokens = 0;
    int64_t bytes = 0;
  };

  static int64_t Computed(const Sequence& sequence) {
    return static_cast<int64_t>(sequence.request.prompt_ids.size()) +
           sequence.num_tokens;
  }
  int64_t Need(const Sequence& sequence) const {
    return std::min(static_cast<int64_t>(sequence.request.prompt_ids.size()) +
                        sequence.num_tokens + StepPositions(),
                    sequence.request.MaxTokens());
  }
  bool Begin(int64_t slot, DecodeRequest request, int64_t num_tokens) {
    EXPECT_FALSE(slots_[static_cast<size_t>(slot)].has_value());
    const uint32_t example = request.key.example;
    Sequence sequence{std::move(request), num_tokens};
    if (!Take(sequence, KvBytes(Need(sequence)))) return false;
    slots_[static_cast<size_t>(slot)] = std::move(sequence);
    ++counts_.starts[example];
    return true;
  }
  bool Take(Sequence& sequence, int64_t bytes) {
    const int64_t more = std::max<int64_t>(0, bytes - sequence.bytes);
    if (bytes_ + more > options_.memory) return false;
    bytes_ += more;
    sequence.bytes += more;
    counts_.most_bytes = std::max(counts_.most_bytes, bytes_);
    return true;
  }

  const CountingOptions options_;
  Counts& counts_;
  ModelConfig config_;
  std::vector<std::optional<Sequence>> slots_;
  std::map<uint64_t, Sequence> kept_;
  int64_t host_bytes_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace dapd
