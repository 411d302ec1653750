// Input: sampling parameters, then logits (4 bytes each).
// The fast sampler picks the token of a slow sampler, and always a token that
// may be picked.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "common/base/check.h"
#include "common/generation/choose_token.h"
#include "common/generation/sampling.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

constexpr double kTemperatures[] = {0.0, 5e-324, 1e-10, 0.7, 1.0, 1.1, 1e300};
constexpr double kTopPs[] = {1.0, 0.95, 0.5, 1e-12, 5e-324};

// Goes through the kept tokens in order of probability.
int32_t SlowSample(const std::vector<float>& logits,
                   const SamplingParams& params,
                   double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const auto logit = [&](size_t rank) {
    return static_cast<double>(logits[static_cast<size_t>(order[rank])]);
  };
  if (params.temperature == 0.0) return order[0];
  size_t kept = order.size();
  if (params.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(params.top_k));
  }
  const auto weigh = [&](double value) {
    return std::exp((value - logit(0)) / params.temperature);
  };
  const auto weight = [&](size_t rank) { return weigh(logit(rank)); };
  // Without top-k the mass of all tokens is added up in the order of their ids.
  double total = 0.0;
  if (params.top_k > 0) {
    for (size_t i = 0; i < kept; ++i) total += weight(i);
  } else {
    for (const float value : logits) total += weigh(value);
  }
  if (params.top_p < 1.0) {
    double mass = 0.0;
    size_t i = 0;
    for (; i < kept && mass < params.top_p * total; ++i) mass += weight(i);
    kept = std::max<size_t>(i, 1);
    total = mass;
  }
  double left = uniform * total;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weight(i);
    if (left < 0.0) return order[i];
  }
  return order[kept - 1];
}

void Run(InputReader input) {
  SamplingParams params;
  params.temperature = kTemperatures[input.Byte() % std::size(kTemperatures)];
  params.top_p = kTopPs[input.Byte() % std::size(kTopPs)];
  params.top_k = input.Byte() % 8;
  const SamplingKey key = {input.Number(), input.Byte(), input.Byte(), 0};
  const double uniform = KeyedUniform(key, input.Byte());
  Check(uniform >= 0.0 && uniform < 1.0, "uniform numbers lie in [0, 1)");
  std::vector<float> logits;
  while (!input.empty() && logits.size() < 64) {
    const uint32_t bits = input.Number();
    float logit = 0.0F;
    std::memcpy(&logit, &bits, sizeof(logit));
    // The engine refuses logits that are not finite.
    if (std::isfinite(logit)) logits.push_back(logit);
  }
  if (logits.empty()) return;
  const int32_t token =
      SampleToken(logits, static_cast<int64_t>(logits.size()), params, uniform);
  Check(token >= 0 && static_cast<size_t>(token) < logits.size(),
        "a token of the vocabulary is picked");
  Check(token == SlowSample(logits, params, uniform),
        "fast and slow sampling agree");
  const std::optional<ChosenToken> chosen =
      ChooseToken(DecodeKernelsOf(CpuLevelInUse()),
                  logits,
                  static_cast<int64_t>(logits.size()),
                  params,
                  uniform);
  Check(chosen.has_value() && chosen->token == token,
        "vectorised and slow sampling agree");
  Check(!(LogProbability(logits, token) > 1e-3F),
        "a log-probability is at most 0");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
