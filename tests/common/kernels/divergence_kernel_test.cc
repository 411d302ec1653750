#include "common/kernels/divergence_kernel.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/worse.h"

namespace dapd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Holds logits of two students and three teachers over a few tokens, as in
// DAPD. Sources 0 and 1 are students; teacher 2 serves student 0, teacher 3
// student 1, and teacher 4 both students.
struct Problem {
  int64_t tokens;
  int64_t vocabulary;
  float clip;
  std::vector<std::vector<float>> logits;  // by source, [tokens, vocabulary]
  std::vector<DivergenceTerm> terms;

  Problem(int64_t n,
          int64_t v,
          float spread,
          float c,
          DivergenceKind kind = DivergenceKind::kForwardKl)
      : tokens(n), vocabulary(v), clip(c) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, spread);
    logits.resize(5, std::vector<float>(n * v));
    for (std::vector<float>& rows : logits) {
      for (float& z : rows) z = normal(random);
    }
    // Student 0 is close to its teacher: differences matter, not values.
    for (size_t i = 0; i < logits[0].size(); ++i) {
      logits[0][i] = logits[2][i] + 0.01F * logits[0][i];
    }
    const auto add = [&](int student, int target, float weight) {
      terms.push_back({.student = student,
                       .target = target,
                       .kind = kind,
                       .beta = 0.3F,
                       .clip = c,
                       .weight = weight});
    };
    add(0, 2, 0.5F);
    add(1, 3, 0.25F);
    add(1, 4, 0.125F);
    add(0, 4, 1.0F);
  }

  std::vector<DivergenceTokenSums> Run(float scale, bool with_gradient) {
    std::vector<DivergenceSource> sources;
    for (size_t s = 0; s < logits.size(); ++s) {
      sources.push_back({logits[s].data(), vocabulary, s < 2});
    }
    std::vector<DivergenceTokenSums> sums(tokens * terms.size());
    DivergenceTokens(
        {sources, derived, terms, vocabulary, scale, with_gradient},
        0,
        tokens,
        sums.data());
    return sums;
  }

  std::vector<DerivedSource> derived;
};

struct DoubleMath {
  double Exp(double x) const { return std::exp(x); }
  double Log(double x) const { return std::log(x); }
};

// Computes an entry in double precision.
ClippedEntry<double> EntryInDouble(const DivergenceTerm& term,
                                   double log_q,
                                   double log_p) {
  return WithKind(term.kind, [&]<DivergenceKind kKind>() {
    return EntryOf<kKind>(std::exp(log_q),
                          std::exp(log_p),
                          log_q - log_p,
                          static_cast<double>(term.beta),
                          static_cast<double>(term.clip),
                          DoubleMath{});
  });
}

// Computes the sums entry by entry in double precision, with the header that
// the kernels use and with logarithms by their definition.
struct Slow {
  std::vector<DivergenceTokenSums> sums;
  std::vector<std::vector<double>> gradient;  // by student

  Slow(const Problem& problem, double scale) {
    const int64_t v = problem.vocabulary;
    gradient.resize(2, std::vector<double>(problem.tokens * v));
    for (int64_t t = 0; t < problem.tokens; ++t) {
      for (const DivergenceTerm& term : problem.terms) {
        const std::vector<double> log_p =
            LogSoftmax(problem.logits[term.student].data() + t * v, v, scale);
        const std::vector<double> log_q =
            LogSoftmax(problem.logits[term.target].data() + t * v, v, scale);
        DivergenceTokenSums sum;
        std::vector<double> pull(v);
        for (int64_t i = 0; i < v; ++i) {
          const ClippedEntry<double> entry =
              EntryInDouble(term, log_q[i], log_p[i]);
          sum.clipped += entry.clipped;
          sum.unclipped += entry.component;
          sum.mass += entry.pull;
          sum.any_clipped |= entry.component > entry.clipped;
          pull[i] = entry.pull;
        }
        for (int64_t i = 0; i < v; ++i) {
          gradient[term.student][t * v + i] +=
              term.weight *
              LogitGradient(std::exp(log_p[i]), sum.mass, pull[i], scale);
        }
        sums.push_back(sum);
      }
    }
  }

  static std::vector<double> LogSoftmax(const float* z,
                                        int64_t size,
                                        double scale) {
    double max = z[0];
    for (int64_t i = 0; i < size; ++i) max = std::max<double>(max, z[i]);
    double sum = 0.0;
    for (int64_t i = 0; i < size; ++i) sum += std::exp((z[i] - max) * scale);
    std::vector<double> result;
    for (int64_t i = 0; i < size; ++i) {
      result.push_back((z[i] - max) * scale - std::log(sum));
    }
    return result;
  }
};

double RelativeError(const std::vector<float>& ours,
                     const std::vector<double>& expected) {
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(ours[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return NanIsInfinity(std::sqrt(norm == 0.0 ? error : error / norm));
}

struct DivergenceCase {
  std::string name;
  int64_t vocabulary;
  float spread;
  float clip;
  DivergenceKind kind = DivergenceKind::kForwardKl;
};

TEST(DivergenceTokensTest, SumsAndGradientAgreeWithDoublePrecision) {
  constexpr float kScale = 1.0F / 1.1F;
  using enum DivergenceKind;
  for (const DivergenceCase& c : std::vector<DivergenceCase>{
           {"a few lanes", 5, 2.0F, 0.05F},
           {"one vector", 16, 2.0F, 0.05F},
           {"a block and a tail", 1037, 3.0F, 0.05F},
           {"not clipped", 5000, 2.0F, kInfinity},
           {"all clipped", 70, 1.0F, -5.0F},
           {"peaked", 5000, 12.0F, 0.05F},
           {"reverse", 1037, 3.0F, 0.05F, kReverseKl},
           {"reverse, not clipped", 70, 2.0F, kInfinity, kReverseKl},
           {"reverse, peaked", 5000, 12.0F, 0.05F, kReverseKl},
           {"js", 1037, 3.0F, 0.05F, kJensenShannon},
           {"js, not clipped", 70, 2.0F, kInfinity, kJensenShannon},
           {"js, peaked", 5000, 12.0F, 0.05F, kJensenShannon}}) {
    Problem problem(3, c.vocabulary, c.spread, c.clip, c.kind);
    const Slow slow(problem, kScale);
    const std::vector<DivergenceTokenSums> sums = problem.Run(kScale, true);
    double worst = 0.0;
    for (size_t i = 0; i < sums.size(); ++i) {
      // Near zero the error is relative to 0.05, because probabilities in
      // float32 do not sum to exactly one.
      const auto error = [](double ours, double expected) {
        return std::abs(ours - expected) / (std::abs(expected) + 0.05);
      };
      worst = Worse(worst, error(sums[i].clipped, slow.sums[i].clipped));
      worst = Worse(worst, error(sums[i].unclipped, slow.sums[i].unclipped));
      worst = Worse(worst, error(sums[i].mass, slow.sums[i].mass));
      EXPECT_EQ(sums[i].any_clipped, slow.sums[i].any_clipped) << c.name;
    }
    const double gradient =
        Worse(RelativeError(problem.logits[0], slow.gradient[0]),
              RelativeError(problem.logits[1], slow.gradient[1]));
    RecordProperty(c.name, std::to_string(worst));
    std::cout << c.name << ": sums " << worst << ", gradient " << gradient
              << "\n";
    EXPECT_LT(worst, 5e-6) << c.name;
    EXPECT_LT(gradient, 1e-5) << c.name;
  }
}

TEST(DivergenceTokensTest, TeachersAndAStudentWithoutGradientAreLeftAlone) {
  Problem problem(2, 100, 2.0F, 0.05F);
  const std::vector<std::vector<float>> before = problem.logits;
  problem.Run(1.0F, false);
  EXPECT_EQ(problem.logits, before);
  problem.Run(1.0F, true);
  for (size_t teacher = 2; teacher < 5; ++teacher) {
    EXPECT_EQ(problem.logits[teacher], before[teacher]);
  }
  EXPECT_NE(problem.logits[0], before[0]);
}

TEST(DivergenceTokensTest, ATokensResultDoesNotDependOnItsNeighbours) {
  Problem together(4, 300, 2.0F, 0.05F);
  const std::vector<DivergenceTokenSums> all = together.Run(1.0F, true);
  Problem apart(4, 300, 2.0F, 0.05F);
  std::vector<DivergenceSource> sources;
  for (size_t s = 0; s < 5; ++s) {
    sources.push_back({apart.logits[s].data(), 300, s < 2});
  }
  std::vector<DivergenceTokenSums> sums(all.size());
  const DivergenceChunk chunk{sources, {}, apart.terms, 300, 1.0F, true};
  for (const int64_t t : {2, 0, 3, 1}) {
    DivergenceTokens(chunk, t, t + 1, sums.data());
  }
  EXPECT_EQ(apart.logits, together.logits);
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i].clipped, all[i].clipped);
  }
}

TEST(DivergenceTokensTest, ANotANumberReachesSumAndGradient) {
  for (const size_t source : {size_t{0}, size_t{2}}) {
    Problem problem(1, 40, 2.0F, 0.05F);
    problem.logits[source][7] = std::nanf("");
    const std::vector<DivergenceTokenSums> sums = problem.Run(1.0F, true);
    EXPECT_TRUE(std::isnan(sums[0].clipped));
    EXPECT_TRUE(std::isnan(problem.logits[0][3]));
  }
}

TEST(DivergenceTokensTest, AWeightOfAnyTokenScalesItsLossAndGradient) {
  Problem plain(3, 60, 2.0F, 0.05F);
  const auto all = plain.Run(1.0F, true);
  Problem weighted(3, 60, 2.0F, 0.05F);
  const std::vector<float> weights = {1.0F, 0.0F, 0.5F};
  for (DivergenceTerm& term : weighted.terms) {
    term.token_weights = weights.data();
  }
  const auto some = weighted.Run(1.0F, true);
  for (int64_t t = 0; t < 3; ++t) {
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_DOUBLE_EQ(some[t * 4 + k].clipped,
                       weights[t] * all[t * 4 + k].clipped);
    }
    for (int64_t v = 0; v < 60; ++v) {
      EXPECT_NEAR(weighted.logits[0][t * 60 + v],
                  weights[t] * plain.logits[0][t * 60 + v],
                  1e-7);
    }
  }
  Problem late(3, 60, 2.0F, 0.05F);
  for (DivergenceTerm& term : late.terms) term.first_token = 2;
  const auto last = late.Run(1.0F, true);
  EXPECT_EQ(last[1 * 4].clipped, 0.0);
  EXPECT_EQ(last[2 * 4].clipped, all[2 * 4].clipped);
  EXPECT_EQ(late.logits[0][60], 0.0F);
  EXPECT_EQ(late.logits[0][120], plain.logits[0][120]);
}

TEST(DivergenceTokensTest, ARoutedTokenHasTheBitsOfThePassItTakes) {
  Problem routed(2, 60, 2.0F, 0.05F);
  const std::vector<uint8_t> route = {0, 1};
  routed.logits.emplace_back();  // a source without its own row
  routed.derived = {{.kind = DerivedSource::Kind::kRouted,
                     .source = 5,
                     .parts = {2, 3},
                     .num_parts = 2,
                     .route = route.data()}};
  routed.terms = {{.student = 0, .target = 5, .weight = 0.5F}};
  const auto sums = routed.Run(1.0F, true);
  for (const int target : {2, 3}) {
    Problem direct(2, 60, 2.0F, 0.05F);
    direct.terms = {{.student = 0, .target = target, .weight = 0.5F}};
    const auto expected = direct.Run(1.0F, true);
    const size_t t = target == 2 ? 0 : 1;
    EXPECT_EQ(sums[t].clipped, expected[t].clipped);
    for (size_t v = 60 * t; v < 60 * (t + 1); ++v) {
      EXPECT_EQ(routed.logits[0][v], direct.logits[0][v]);
    }
  }
}

TEST(DivergenceTokensTest, ToAOneHotTargetItIsTheCrossEntropy) {
  constexpr int64_t kTokens = 3;
  constexpr int64_t kVocabulary = 61;
  constexpr float kScale = 0.7F;
  Problem problem(kTokens, kVocabulary, 4.0F, kInfinity);
  const std::vector<float> before = problem.logits[1];
  const std::vector<int64_t> ids = {0, 60, 17};
  problem.logits.emplace_back(kTokens * kVocabulary);
  problem.derived = {
      {.kind = DerivedSource::Kind::kOneHot, .source = 5, .ids = ids.data()}};
  problem.terms = {
      {.student = 1, .target = 5, .clip = kInfinity, .weight = 0.5F}};
  const auto sums = problem.Run(kScale, true);
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<double> log_p =
        Slow::LogSoftmax(before.data() + t * kVocabulary, kVocabulary, kScale);
    const auto id = static_cast<size_t>(ids[static_cast<size_t>(t)]);
    EXPECT_NEAR(sums[static_cast<size_t>(t)].clipped, -log_p[id], 1e-5);
    for (size_t v = 0; v < log_p.size(); ++v) {
      const double pull = v == id ? 1.0 : 0.0;
      EXPECT_NEAR(problem.logits[1][t * kVocabulary + v],
                  0.5 * kScale * (std::exp(log_p[v]) - pull),
                  1e-6);
    }
  }
}

// A bound far from every value changes no digit.
TEST(DivergenceTokensTest, ASoftClipFarAwayChangesNoDigitOfAMixture) {
  constexpr int64_t kVocabulary = 300;
  const auto sums_with = [&](float soft_clip) {
    Problem problem(2, kVocabulary, 3.0F, kInfinity);
    problem.logits.emplace_back(2 * kVocabulary);
    DerivedSource mixture{.source = 5, .anchor = 2, .num_parts = 2};
    mixture.parts[0] = 3;
    mixture.parts[1] = 4;
    mixture.factors[0] = 1.0F;
    mixture.factors[1] = -1.0F;
    mixture.soft_clip = soft_clip;
    problem.derived = {mixture};
    problem.terms = {
        {.student = 1, .target = 5, .clip = kInfinity, .weight = 1.0F}};
    return problem.Run(1.0F, false);
  };
  const auto without = sums_with(kInfinity);
  for (const float soft_clip : {1e5F, 1e7F}) {
    const auto sums = sums_with(soft_clip);
    for (size_t t = 0; t < without.size(); ++t) {
      EXPECT_NEAR(sums[t].clipped, without[t].clipped, 1e-4) << soft_clip;
    }
  }
}

}  // namespace
}  // namespace dapd
