#include "common/generation/choose_token.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dapd {
namespace {

constexpr size_t kFirstRanked = 64;

// The maximum of each chunk of the tokens that may be sampled, and the largest
// of all logits.
struct Maxima {
  std::vector<float> chunks;
  float largest = 0.0F;
};

std::optional<Maxima> FindMaxima(const DecodeKernels& kernels,
                                 std::span<const float> logits,
                                 int64_t num_tokens) {
  const auto num_chunks = [](int64_t count) {
    return static_cast<size_t>((count + kMaximaChunk - 1) / kMaximaChunk);
  };
  const int64_t padding = static_cast<int64_t>(logits.size()) - num_tokens;
  Maxima maxima;
  maxima.chunks.resize(num_chunks(num_tokens));
  std::vector<float> rest(num_chunks(padding));
  if (!kernels.chunk_maxima(logits.data(), num_tokens, maxima.chunks.data()) ||
      !kernels.chunk_maxima(logits.data() + num_tokens, padding, rest.data())) {
    return std::nullopt;
  }
  maxima.largest =
      *std::max_element(maxima.chunks.begin(), maxima.chunks.end());
  for (const float value : rest) {
    maxima.largest = std::max(maxima.largest, value);
  }
  return maxima;
}

// Returns the lowest id with the largest logit.
int32_t Greedy(std::span<const float> known, const Maxima& maxima) {
  const auto chunk =
      std::max_element(maxima.chunks.begin(), maxima.chunks.end()) -
      maxima.chunks.begin();
  const auto begin = known.begin() + chunk * kMaximaChunk;
  const auto end =
      known.begin() + std::min<int64_t>((chunk + 1) * kMaximaChunk,
                                        static_cast<int64_t>(known.size()));
  return static_cast<int32_t>(std::max_element(begin, end) - known.begin());
}

// Returns the ids of the `count` largest logits, ranked. It sorts no more
// logits than are needed to find them.
std::vector<int32_t> Largest(std::span<const float> known,
                             const Maxima& maxima,
                             size_t count) {
  float bound = -INFINITY;
  if (count <= maxima.chunks.size()) {
    std::vector<float> sorted = maxima.chunks;
    const auto nth = sorted.begin() + static_cast<int64_t>(count) - 1;
    std::nth_element(sorted.begin(), nth, sorted.end(), std::greater<float>());
    bound = *nth;
  }
  std::vector<int32_t> ids;
  for (size_t chunk = 0; chunk < maxima.chunks.size(); ++chunk) {
    if (maxima.chunks[chunk] < bound) continue;
    const size_t begin = chunk * kMaximaChunk;
    const size_t end = std::min(begin + kMaximaChunk, known.size());
    for (size_t id = begin; id < end; ++id) {
      if (known[id] >= bound) ids.push_back(static_cast<int32_t>(id));
    }
  }
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(),
                    ids.begin() + static_cast<int64_t>(count),
                    ids.end(),
                    MoreProbable(known));
  ids.resize(count);
  return ids;
}

// Ranks as many of the most probable tokens as decide the draw, nearly always
// few.
int32_t DrawFromAll(std::span<const float> known,
                    const Maxima& maxima,
                    const SamplingParams& params,
                    double uniform) {
  const double mass = MassOf(known, params.temperature);
  for (size_t count = kFirstRanked;; count *= 8) {
    const std::vector<int32_t> ids =
        Largest(known, maxima, std::min(count, known.size()));
    const std::optional<int32_t> token = DrawRanked(
        ids, ids.size() == known.size(), mass, known, params, uniform);
    if (token.has_value()) return *token;
  }
}

}  // namespace

float FastLogProbability(const DecodeKernels& kernels,
                         std::span<const float> logits,
                         float largest,
                         int32_t id) {
  const double sum = kernels.sum_exp(
      logits.data(), static_cast<int64_t>(logits.size()), largest);
  return static_cast<float>(
      static_cast<double>(logits[static_cast<size_t>(id)]) -
      static_cast<double>(largest) - std::log(sum));
}

std::optional<ChosenToken> ChooseToken(const DecodeKernels& kernels,
                                       std::span<const float> logits,
                                       int64_t num_tokens,
                                       const SamplingParams& params,
                                       double uniform) {
  const std::optional<Maxima> maxima = FindMaxima(kernels, logits, num_tokens);
  if (!maxima.has_value()) return std::nullopt;
  const std::span<const float> known =
      logits.first(static_cast<size_t>(num_tokens));
  ChosenToken chosen;
  if (params.temperature == 0.0) {
    chosen.token = Greedy(known, *maxima);
  } else if (params.top_k > 0) {
    const size_t count =
        std::min(known.size(), static_cast<size_t>(params.top_k));
    const std::vector<int32_t> ids = Largest(known, *maxima, count);
    const double mass = MassOf(ids, known, params.temperature);
    chosen.token =
        *DrawRanked(ids, /*is_all=*/true, mass, known, params, uniform);
  } else {
    chosen.token = DrawFromAll(known, *maxima, params, uniform);
  }
  chosen.logprob =
      FastLogProbability(kernels, logits, maxima->largest, chosen.token);
  return chosen;
}

}  // namespace dapd
