#include "common/objective/token_routing.h"

#include <vector>

#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

// Returns a tensor without dimensions. Values above the limit add nothing
// instead of being left out, since otherwise a device would have to tell the
// host how many they are.
at::Tensor TrimmedMean(const at::Tensor& values, double trim) {
  const at::Tensor is_above = values > at::quantile(values, 1.0 - trim);
  const at::Tensor sum = values.masked_fill(is_above, 0.0).sum(at::kDouble);
  return (sum / is_above.logical_not().sum()).to(values.scalar_type());
}

}  // namespace

TokenRoutes RouteTokens(const Routed& routed,
                        std::span<const at::Tensor> first,
                        std::span<const at::Tensor> second) {
  at::NoGradGuard no_grad;
  std::vector<int64_t> lengths;
  for (const at::Tensor& answer : first) lengths.push_back(answer.size(0));
  const at::Tensor log_1 = at::cat(at::TensorList(first.data(), first.size()));
  const at::Tensor log_2 =
      at::cat(at::TensorList(second.data(), second.size()));
  // In units of the largest value, since tokens that both passes find nearly
  // impossible have probabilities that are 0 in float32.
  const at::Tensor largest = at::maximum(log_1, log_2).max();
  const at::Tensor q_1 = (log_1 - largest).exp();
  const at::Tensor q_2 = (log_2 - largest).exp();
  const at::Tensor distance = (log_1 - log_2).abs();
  const at::Tensor agrees = distance < TrimmedMean(distance, routed.trim);
  const at::Tensor is_likely = q_1 + q_2 >= TrimmedMean(q_1, routed.trim) +
                                                TrimmedMean(q_2, routed.trim);
  const auto value = [](Regime regime) { return static_cast<int64_t>(regime); };
  const at::Tensor regimes = at::where(agrees,
                                       at::where(is_likely,
                                                 value(Regime::kAgreeLikely),
                                                 value(Regime::kAgreeUnlikely)),
                                       at::where(log_1 >= log_2,
                                                 value(Regime::kFirstSurer),
                                                 value(Regime::kSecondSurer)));
  std::vector<float> factors;
  std::vector<int64_t> seconds;
  std::vector<at::Tensor> counts;
  TokenRoutes routes;
  for (size_t r = 0; r < kNumRegimes; ++r) {
    factors.push_back(static_cast<float>(routed.choices[r].factor));
    seconds.push_back(routed.choices[r].takes_second ? 1 : 0);
    counts.push_back((regimes == static_cast<int64_t>(r)).sum());
  }
  routes.counts = at::stack(counts);
  const auto by_regime = [&](const at::Tensor& table) {
    return ToDevice(table, regimes.device())
        .index_select(0, regimes)
        .split_with_sizes(lengths, 0);
  };
  routes.token_weights = by_regime(at::tensor(factors));
  routes.route = by_regime(at::tensor(seconds).to(at::kByte));
  return routes;
}

}  // namespace dapd
