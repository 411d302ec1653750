#include "common/data/gradient_compatibility.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double Cosine(const Vector& a, const Vector& b) {
  return Dot(a, b) / std::sqrt(Dot(a, a) * Dot(b, b));
}

// Holds the gradients of both terms at a position of a problem.
struct Place {
  size_t problem = 0;
  Vector first;
  Vector second;
};

// Makes the arguments of the header's two functions for these gradients, and
// computes the mean gradients directly. `sums` is the number of sums over which
// the problems are distributed.
class Gradients {
 public:
  explicit Gradients(const std::vector<Place>& places, size_t sums) {
    size_t problems = 0;
    for (const Place& place : places) {
      problems = std::max(problems, place.problem + 1);
    }
    std::vector<int64_t> counts(problems, 0);
    for (const Place& place : places) ++counts[place.problem];
    const Vector zero(places[0].first.size(), 0.0);
    std::vector<Vector> first(sums, zero);
    std::vector<Vector> second(sums, zero);
    mean_first = mean_second = zero;
    products.problems.assign(sums, 0);
    for (size_t i = 0; i < problems; ++i) ++products.problems[i % sums];
    for (const Place& place : places) {
      positions.push_back({place.problem,
                           Dot(place.first, place.second),
                           std::sqrt(Dot(place.first, place.first)),
                           std::sqrt(Dot(place.second, place.second))});
      const auto count = static_cast<double>(counts[place.problem]);
      for (size_t k = 0; k < zero.size(); ++k) {
        const double one = place.first[k] / count;
        const double two = place.second[k] / count;
        first[place.problem % sums][k] += one;
        second[place.problem % sums][k] += two;
        mean_first[k] += one / static_cast<double>(problems);
        mean_second[k] += two / static_cast<double>(problems);
      }
    }
    for (size_t i = 0; i < sums; ++i) {
      for (size_t j = 0; j < sums; ++j) {
        products.first.push_back(Dot(first[i], first[j]));
        products.second.push_back(Dot(second[i], second[j]));
        products.cross.push_back(Dot(first[i], second[j]));
      }
    }
  }

  std::vector<PositionProducts> positions;
  GradientProducts products;
  Vector mean_first;
  Vector mean_second;
};

// Returns three problems with one, two and three positions.
std::vector<Place> Places() {
  return {{0, {1.0, 0.0, 2.0}, {0.5, 1.0, 1.0}},
          {1, {0.0, 1.0, 1.0}, {0.0, -2.0, 1.0}},
          {1, {2.0, 1.0, 0.0}, {1.0, 1.0, 1.0}},
          {2, {1.0, 1.0, 1.0}, {-1.0, -1.0, 0.5}},
          {2, {0.0, 0.5, 0.0}, {0.0, 3.0, 1.0}},
          {2, {1.0, -1.0, 2.0}, {2.0, 0.0, 1.0}}};
}

TEST(GradientCompatibilityTest, ByPositionEveryProblemCountsAlike) {
  const Gradients gradients(Places(), 3);
  const CompatibilityReport report =
      SummarizeCompatibility(gradients.positions, gradients.products, 1);
  double cosine = 0.0;
  double dot = 0.0;
  const double counts[] = {1.0, 2.0, 3.0};
  for (const Place& place : Places()) {
    cosine += Cosine(place.first, place.second) / counts[place.problem] / 3;
    dot += Dot(place.first, place.second) / counts[place.problem] / 3;
  }
  EXPECT_NEAR(report.by_position.cosine.mean, cosine, 1e-12);
  EXPECT_NEAR(report.by_position.dot.mean, dot, 1e-12);
  // The dot product is positive at 1 of 1, 1 of 2 and 2 of 3 positions.
  EXPECT_NEAR(
      report.by_position.positive.mean, (1.0 + 0.5 + 2.0 / 3) / 3, 1e-12);
  double first = 0.0;
  double second = 0.0;
  for (const Place& place : Places()) {
    const double count = counts[place.problem];
    first += std::sqrt(Dot(place.first, place.first)) / count / 3;
    second += std::sqrt(Dot(place.second, place.second)) / count / 3;
  }
  EXPECT_NEAR(report.by_position.first_norm.mean, first, 1e-12);
  EXPECT_NEAR(report.by_position.second_norm.mean, second, 1e-12);
  EXPECT_EQ(report.positions, 6);
  EXPECT_EQ(report.problems, 3);
  EXPECT_EQ(report.positions_without_cosine, 0);
}

TEST(GradientCompatibilityTest, OverAllItIsTheCosineOfTheMeanGradients) {
  for (const size_t sums : {3u, 2u, 1u}) {
    const Gradients gradients(Places(), sums);
    const CompatibilityReport report =
        SummarizeCompatibility(gradients.positions, gradients.products, 1);
    EXPECT_NEAR(report.over_all.cosine.mean,
                Cosine(gradients.mean_first, gradients.mean_second),
                1e-12);
    EXPECT_NEAR(report.over_all.dot.mean,
                Dot(gradients.mean_first, gradients.mean_second),
                1e-12);
    EXPECT_NEAR(report.over_all.first_norm,
                std::sqrt(Dot(gradients.mean_first, gradients.mean_first)),
                1e-12);
    EXPECT_NEAR(report.over_all.second_norm,
                std::sqrt(Dot(gradients.mean_second, gradients.mean_second)),
                1e-12);
    EXPECT_EQ(report.sums, static_cast<int64_t>(sums));
    EXPECT_EQ(report.problems, 3);
  }
}

// Gradients that disagree at every position may add up to gradients that agree,
// and conversely: neither aggregation follows from the other.
TEST(GradientCompatibilityTest, TheTwoAggregationsCanDisagree) {
  const Gradients gradients(
      {{0, {1.0, 4.0}, {1.0, -1.0}}, {0, {1.0, -4.0}, {1.0, 1.0}}}, 1);
  const CompatibilityReport report =
      SummarizeCompatibility(gradients.positions, gradients.products, 1);
  EXPECT_LT(report.by_position.cosine.mean, 0.0);
  EXPECT_EQ(report.by_position.positive.mean, 0.0);
  EXPECT_NEAR(report.over_all.cosine.mean, 1.0, 1e-12);
}

TEST(GradientCompatibilityTest, AnIntervalDrawsProblemsNotPositions) {
  // All positions of a problem agree, so many of them contain no more
  // information than one.
  std::vector<Place> few;
  std::vector<Place> many;
  for (size_t problem = 0; problem < 6; ++problem) {
    const double angle = 0.4 * static_cast<double>(problem);
    const Place place{problem, {1.0, 0.0}, {std::cos(angle), std::sin(angle)}};
    few.push_back(place);
    for (int i = 0; i < 50; ++i) many.push_back(place);
  }
  const Gradients one(few, 6);
  const Gradients fifty(many, 6);
  const auto narrow = SummarizeCompatibility(one.positions, one.products, 3);
  const auto wide = SummarizeCompatibility(fifty.positions, fifty.products, 3);
  EXPECT_GT(narrow.by_position.cosine.high - narrow.by_position.cosine.low,
            0.3);
  EXPECT_NEAR(narrow.by_position.cosine.low, wide.by_position.cosine.low, 1e-9);
  EXPECT_NEAR(narrow.over_all.cosine.high, wide.over_all.cosine.high, 1e-9);
  EXPECT_LT(narrow.over_all.cosine.low, narrow.over_all.cosine.mean);
  EXPECT_GT(narrow.over_all.cosine.high, narrow.over_all.cosine.mean);
}

TEST(GradientCompatibilityTest, ATermAgreesWithItselfWithoutDoubt) {
  std::vector<Place> places = Places();
  for (Place& place : places) place.second = place.first;
  const Gradients gradients(places, 3);
  const CompatibilityReport report =
      SummarizeCompatibility(gradients.positions, gradients.products, 1);
  for (const Interval& cosine :
       {report.by_position.cosine, report.over_all.cosine}) {
    EXPECT_NEAR(cosine.low, 1.0, 1e-12);
    EXPECT_NEAR(cosine.high, 1.0, 1e-12);
  }
}

TEST(GradientCompatibilityTest, AZeroGradientHasNoCosineButADotProduct) {
  const Gradients gradients({{0, {0.0, 0.0}, {1.0, 2.0}},
                             {0, {1.0, 0.0}, {1.0, 0.0}},
                             {1, {0.0, 0.0}, {1.0, 2.0}}},
                            2);
  const CompatibilityReport report =
      SummarizeCompatibility(gradients.positions, gradients.products, 1);
  EXPECT_FALSE(gradients.positions[0].Cosine().has_value());
  EXPECT_EQ(report.positions_without_cosine, 2);
  EXPECT_NEAR(report.by_position.cosine.mean, 1.0, 1e-12);
  EXPECT_NEAR(report.by_position.dot.mean, 0.25, 1e-12);
  // A resample of only the second problem has no direction.
  EXPECT_EQ(report.over_all.cosine.low, 0.0);
  const std::string text = ToText(report);
  EXPECT_NE(text.find("2 positions have no cosine"), std::string::npos);
}

TEST(GradientCompatibilityTest, JsonHasWhatTheTextHas) {
  const Gradients gradients(Places(), 2);
  const CompatibilityReport report =
      SummarizeCompatibility(gradients.positions, gradients.products, 1);
  const nlohmann::ordered_json json = ToJson(report);
  EXPECT_EQ(json["positions"], 6);
  EXPECT_EQ(json["sums"], 2);
  EXPECT_EQ(json["by_position"]["cosine"]["mean"],
            report.by_position.cosine.mean);
  EXPECT_EQ(json["over_all"]["dot"]["high"], report.over_all.dot.high);
  const std::string text = ToText(report);
  EXPECT_NE(text.find("6 positions of 3 problems"), std::string::npos);
  EXPECT_NE(text.find("2 groups of problems"), std::string::npos);
}

}  // namespace
}  // namespace dapd
