// Keyed sampling: the next token is a pure function of the logits, the
// parameters and a key. So it does not matter which worker runs a sample, when,
// beside which other samples, or after how many retries.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace dapd {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy (lowest id among equals)
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // in (0, 1]; 1: all
  int64_t max_new_tokens = 1024;
};

struct SamplingKey {
  uint64_t seed = 0;     // of the run
  uint32_t step = 0;     // of the run for which it is sampled, from 0
  uint32_t example = 0;  // row of the data set
  uint32_t sample = 0;   // number of the answer to that row
};

// Computes Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy
// as 1, 2, 3").
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

// Returns a uniform number in [0, 1) with 53 random bits from Philox4x32 with
// key = seed, counter = (token, sample, example, step).
double KeyedUniform(const SamplingKey& key, uint32_t token_index);

// Samples from `logits` [vocab]. It filters in this order: temperature; the
// top_k most probable tokens; of these the smallest set of most probable tokens
// whose mass reaches top_p (at least one). Equal logits rank by lower id. Ids
// at or above `num_tokens` (padding rows of the embedding) are never chosen.
//
// This is the definition, which sorts; choose_token.h gives the same token
// faster.
int32_t SampleToken(std::span<const float> logits,
                    int64_t num_tokens,
                    const SamplingParams& params,
                    double uniform);

// The order of SampleToken.
class MoreProbable {
 public:
  explicit MoreProbable(std::span<const float> logits) : logits_(logits) {}
  bool operator()(int32_t a, int32_t b) const {
    const float left = logits_[static_cast<size_t>(a)];
    const float right = logits_[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  }

 private:
  std::span<const float> logits_;
};

// The last steps of SampleToken, for a temperature above 0. They return the
// mass of tokens in units of the most probable token's weight: of the top_k
// `ids`, ranked, in their order; or without top_k of all `logits`, in the order
// of their ids.
double MassOf(std::span<const int32_t> ids,
              std::span<const float> logits,
              double temperature);
double MassOf(std::span<const float> logits, double temperature);

// Draws from ranked tokens with that `mass`. `ids` are all of them, or the
// first few (not `is_all`); returns nothing if the few do not decide the draw.
// There must be at least one id.
std::optional<int32_t> DrawRanked(std::span<const int32_t> ids,
                                  bool is_all,
                                  double mass,
                                  std::span<const float> logits,
                                  const SamplingParams& params,
                                  double uniform);

// Returns log softmax(logits)[id] at temperature 1 over the whole vocabulary.
float LogProbability(std::span<const float> logits, int32_t id);

}  // namespace dapd
