#include "common/generation/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace dapd {
namespace {

// log of the sum of exponentials, in double and in the order of the entries.
double LogSumExp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float z : logits) {
    sum += std::exp(static_cast<double>(z) - static_cast<double>(largest));
  }
  return static_cast<double>(largest) + std::log(sum);
}

// Ids in the order of MoreProbable: the first `count`, sorted.
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
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

double KeyedUniform(const SamplingKey& key, uint32_t token_index) {
  const std::array<uint32_t, 4> random = Philox4x32(
      {token_index, key.sample, key.example, key.step},
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(random[0]) << 32) | random[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

int32_t SampleToken(std::span<const float> logits,
                    int64_t num_tokens,
                    const SamplingParams& params,
                    double uniform) {
  const std::span<const float> known =
      logits.first(static_cast<size_t>(num_tokens));
  if (params.temperature == 0.0) {
    // max_element gives the first of equals.
    return static_cast<int32_t>(std::max_element(known.begin(), known.end()) -
                                known.begin());
  }
  std::vector<int32_t> ids(known.size());
  std::iota(ids.begin(), ids.end(), 0);
  size_t kept = known.size();
  if (params.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(params.top_k));
  }
  // Without top_p the order within the kept does not matter, but a fixed one
  // is needed; only a partial sort is paid for.
  SortFirst(ids, kept, known);
  ids.resize(kept);
  return DrawRanked(ids, known, params, uniform);
}

int32_t DrawRanked(std::span<const int32_t> ids,
                   std::span<const float> logits,
                   const SamplingParams& params,
                   double uniform) {
  size_t kept = ids.size();
  std::vector<double> weights(kept);
  double total = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((static_cast<double>(logits[ids[i]]) -
                           static_cast<double>(logits[ids[0]])) /
                          params.temperature);
    total += weights[i];
  }
  if (params.top_p < 1.0) {
    double mass = 0.0;
    size_t i = 0;
    while (i < kept && mass < params.top_p * total) mass += weights[i++];
    kept = std::max<size_t>(i, 1);
    total = mass;
  }
  double left = uniform * total;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weights[i];
    if (left < 0.0) return ids[i];
  }
  return ids[kept - 1];
}

float LogProbability(std::span<const float> logits, int32_t id) {
  return static_cast<float>(static_cast<double>(logits[id]) -
                            LogSumExp(logits));
}

}  // namespace dapd
