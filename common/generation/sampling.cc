#include "common/generation/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/kernels/philox.h"

namespace dapd {
namespace {

// Returns the log of the sum of exponentials, summed in double in the order of
// the entries.
double LogSumExp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float z : logits) {
    sum += std::exp(static_cast<double>(z) - static_cast<double>(largest));
  }
  return static_cast<double>(largest) + std::log(sum);
}

// Returns a token's weight relative to the most probable token.
double Weight(float logit, float largest, double temperature) {
  return std::exp((static_cast<double>(logit) - static_cast<double>(largest)) /
                  temperature);
}

// Brings the first `count` ids in the order of MoreProbable to the front,
// sorted.
void SortFirst(std::vector<int32_t>& ids,
               size_t count,
               std::span<const float> logits) {
  const MoreProbable order(logits);
  if (count < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + count, ids.end(), order);
  }
  std::sort(ids.begin(), ids.begin() + count, order);
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key) {
  const PhiloxWords random =
      Philox({{counter[0], counter[1], counter[2], counter[3]}},
             (static_cast<uint64_t>(key[1]) << 32) | key[0]);
  return std::to_array(random.word);
}

double KeyedUniform(const SamplingKey& key, uint32_t token_index) {
  return PhiloxUniform(
      Philox({{token_index, key.sample, key.example, key.step}}, key.seed));
}

int32_t SampleToken(std::span<const float> logits,
                    int64_t num_tokens,
                    const SamplingParams& params,
                    double uniform) {
  const std::span<const float> known =
      logits.first(static_cast<size_t>(num_tokens));
  if (params.temperature == 0.0) {
    // max_element returns the first of equal elements.
    return static_cast<int32_t>(std::max_element(known.begin(), known.end()) -
                                known.begin());
  }
  std::vector<int32_t> ids(known.size());
  std::iota(ids.begin(), ids.end(), 0);
  size_t kept = known.size();
  if (params.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(params.top_k));
  }
  SortFirst(ids, kept, known);
  ids.resize(kept);
  const double mass = params.top_k > 0 ? MassOf(ids, known, params.temperature)
                                       : MassOf(known, params.temperature);
  return *DrawRanked(ids, /*is_all=*/true, mass, known, params, uniform);
}

double MassOf(std::span<const int32_t> ids,
              std::span<const float> logits,
              double temperature) {
  double mass = 0.0;
  for (const int32_t id : ids) {
    mass += Weight(logits[id], logits[ids[0]], temperature);
  }
  return mass;
}

double MassOf(std::span<const float> logits, double temperature) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double mass = 0.0;
  for (const float logit : logits) mass += Weight(logit, largest, temperature);
  return mass;
}

std::optional<int32_t> DrawRanked(std::span<const int32_t> ids,
                                  bool is_all,
                                  double mass,
                                  std::span<const float> logits,
                                  const SamplingParams& params,
                                  double uniform) {
  const auto weight = [&](size_t i) {
    return Weight(logits[ids[i]], logits[ids[0]], params.temperature);
  };
  size_t kept = ids.size();
  if (params.top_p < 1.0) {
    double reached = 0.0;
    size_t i = 0;
    while (i < kept && reached < params.top_p * mass) reached += weight(i++);
    if (reached < params.top_p * mass && !is_all) return std::nullopt;
    kept = std::max<size_t>(i, 1);
    mass = reached;
    is_all = true;  // ids has all kept tokens
  }
  double left = uniform * mass;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weight(i);
    if (left < 0.0) return ids[i];
  }
  if (!is_all) return std::nullopt;
  return ids[kept - 1];
}

float LogProbability(std::span<const float> logits, int32_t id) {
  return static_cast<float>(static_cast<double>(logits[id]) -
                            LogSumExp(logits));
}

}  // namespace dapd
