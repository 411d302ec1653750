#include "common/objective/token_routing.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::ElementsAre;

std::vector<at::Tensor> Logs(const std::vector<std::vector<double>>& answers) {
  std::vector<at::Tensor> logs;
  for (const std::vector<double>& answer : answers) {
    logs.push_back(at::tensor(answer).log().to(at::kFloat));
  }
  return logs;
}

std::vector<int64_t> CountsOf(const TokenRoutes& routes) {
  const int64_t* counts = routes.counts.const_data_ptr<int64_t>();
  return {counts, counts + routes.counts.numel()};
}

// The factors differ, so they identify the regimes.
Routed MakeRouted(double trim) {
  Routed routed{.trim = trim};
  routed.choices = {{{false, 0.6}, {true, 0.3}, {false, 1.0}, {true, 0.5}}};
  return routed;
}

TEST(RouteTokensTest, EveryTokenIsInTheRegimeThatItsProbabilitiesSay) {
  // The distances are 0.22, 0.18, 1.79 and 2.20, with a mean of 1.10; the mean
  // sum is 0.1925 + 0.2875.
  const TokenRoutes routes = RouteTokens(MakeRouted(0.0),
                                         Logs({{0.40, 0.06, 0.30}, {0.01}}),
                                         Logs({{0.50, 0.05, 0.05}, {0.09}}));
  ASSERT_EQ(routes.route.size(), 2u);
  EXPECT_TRUE(at::equal(routes.token_weights[0],
                        at::tensor(std::vector<float>{0.6F, 0.3F, 1.0F})));
  EXPECT_TRUE(
      at::equal(routes.token_weights[1], at::tensor(std::vector<float>{0.5F})));
  EXPECT_TRUE(
      at::equal(routes.route[0],
                at::tensor(std::vector<int64_t>{0, 1, 0}).to(at::kByte)));
  EXPECT_TRUE(at::equal(routes.route[1],
                        at::tensor(std::vector<int64_t>{1}).to(at::kByte)));
  EXPECT_THAT(CountsOf(routes), ElementsAre(1, 1, 1, 1));
}

TEST(RouteTokensTest, ProbabilitiesThatFloat32TakesForZeroAreStillCompared) {
  const std::vector<at::Tensor> first = {
      at::tensor({-150.0F, -200.0F, -150.0F, -200.0F})};
  const std::vector<at::Tensor> second = {
      at::tensor({-150.1F, -200.1F, -200.0F, -150.0F})};
  const TokenRoutes routes = RouteTokens(MakeRouted(0.0), first, second);
  EXPECT_TRUE(
      at::equal(routes.token_weights[0],
                at::tensor(std::vector<float>{0.6F, 0.3F, 1.0F, 0.5F})));
}

TEST(RouteTokensTest, TwoEqualPassesGoTheFirstsWay) {
  const auto logs = Logs({{0.4, 0.1, 0.9}});
  const TokenRoutes routes = RouteTokens(MakeRouted(0.05), logs, logs);
  EXPECT_THAT(CountsOf(routes), ElementsAre(0, 0, 3, 0));
}

TEST(RouteTokensTest, TheLargestValuesDoNotMoveTheAverages) {
  // One token is far off: if the mean included it, all other tokens would
  // agree.
  std::vector<double> first(20, 0.5);
  std::vector<double> second(20, 0.4);
  for (size_t i = 0; i < 10; ++i) second[i] = 0.45;
  second[19] = 1e-12;
  const auto agreeing = [&](double trim) {
    const std::vector<int64_t> counts =
        CountsOf(RouteTokens(MakeRouted(trim), Logs({first}), Logs({second})));
    return counts[0] + counts[1];
  };
  EXPECT_EQ(agreeing(0.0), 19);
  EXPECT_EQ(agreeing(0.05), 10);
}

}  // namespace
}  // namespace dapd
