#include "common/kernels/component_clip.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/kernels/divergence_entry.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr double kClip = 0.05;

struct NoMath {};  // the forward KL divergence calls no function of it

// Computes the forward KL divergence over two tokens, clipped as in training.
struct TwoTokens {
  std::array<double, 2> components;
  double unclipped = 0.0;
  double clipped = 0.0;
  double push = 0.0;  // minus the gradient of the first token's logit

  TwoTokens(double q1, double p1) {
    const std::array<double, 2> q = {q1, 1.0 - q1};
    const std::array<double, 2> p = {p1, 1.0 - p1};
    double mass = 0.0;
    std::array<double, 2> pulls;
    for (size_t v = 0; v < 2; ++v) {
      const auto entry = EntryOf<DivergenceKind::kForwardKl>(
          q[v], p[v], std::log(q[v] / p[v]), 0.5, kClip, NoMath());
      components[v] = entry.component;
      unclipped += entry.component;
      clipped += entry.clipped;
      pulls[v] = entry.pull;
      mass += entry.pull;
    }
    push = -LogitGradient(p[0], mass, pulls[0], 1.0);
  }
};

// Values that round to zero become 0.0, so that the table never shows -0.000.
double Shown(double value) { return std::abs(value) < 5e-4 ? 0.0 : value; }

// The table shows the effect of the clip if the teacher gives the first token a
// probability of 0.9.
TEST(ComponentClipTest, TheTableInTheDocumentIsWhatIsComputed) {
  std::string table =
      "| student's p | components | true KL | clipped | push on the sure "
      "token's logit |\n| --- | --- | --- | --- | --- |\n";
  for (const double p1 : {0.98, 0.9, 0.86, 0.84, 0.7, 0.3, 0.01}) {
    const TwoTokens at(0.9, p1);
    std::array<char, 128> row = {};
    std::snprintf(row.data(),
                  row.size(),
                  "| %.2f | %.3f, %.3f | %.3f | %.3f | %+.3f |\n",
                  p1,
                  Shown(at.components[0]),
                  Shown(at.components[1]),
                  Shown(at.unclipped),
                  Shown(at.clipped),
                  Shown(at.push));
    table += row.data();
  }
  const auto document =
      ReadFile(DAPD_SOURCE_DIR "/docs/experiments.md", 1 << 20).value();
  EXPECT_THAT(document, HasSubstr(table))
      << "docs/experiments.md has to hold:\n\n"
      << table;
}

TEST(ComponentClipTest, BelowTheWallTheMinimumIsWhereTheSureTokenIsGone) {
  // At p = q exp(-c / q) the sure token's component equals the clip.
  const double wall = 0.9 * std::exp(-kClip / 0.9);
  EXPECT_NEAR(wall, 0.8514, 5e-5);
  EXPECT_GT(TwoTokens(0.9, wall + 1e-6).push, 0.0) << "towards the teacher";
  EXPECT_LT(TwoTokens(0.9, wall - 1e-6).push, 0.0) << "away from him";
  EXPECT_NEAR(TwoTokens(0.9, wall).clipped, 0.010, 5e-4) << "a low wall";
  double last = TwoTokens(0.9, wall).clipped;
  for (double p1 = 0.85; p1 > 1e-6; p1 /= 1.1) {
    const TwoTokens at(0.9, p1);
    EXPECT_LT(at.clipped, last) << "falls all the way down from the wall";
    last = at.clipped;
  }
  // The limit is c + Q log Q, where Q = 0.1 is the other token's share of the
  // target.
  EXPECT_NEAR(last, kClip + 0.1 * std::log(0.1), 1e-6);
  EXPECT_NEAR(last, -0.180, 5e-4);
  EXPECT_EQ(TwoTokens(0.9, 0.9).clipped, 0.0);
}

// If c < -Q log Q, the minimum away from the teacher is the deeper minimum.
TEST(ComponentClipTest, TheRangeOfTheDocumentIsWhereTheOtherMinimumIsDeeper) {
  const auto depth = [](double q1) {
    const double rest = 1.0 - q1;
    return kClip + rest * std::log(rest);
  };
  for (const double q1 : {0.051, 0.99}) EXPECT_GT(depth(q1), 0.0) << q1;
  for (const double q1 : {0.052, 0.5, 0.9, 0.988}) {
    EXPECT_LT(depth(q1), 0.0) << q1;
  }
}

}  // namespace
}  // namespace dapd
