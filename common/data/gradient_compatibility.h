// Gradient compatibility: whether two terms of the objective pull the adapter
// the same way at the same token position.
//
// The paper (DAPD, arXiv 2608.01735) asks this of the Inference Anchor and of
// the self-conditioned bridge, at single interior positions and over them, with
// dot products and cosines. The released code has nothing of it, and the
// paper's definitions were not at hand, so these are this project's: the bridge
// is the view Self, its term the one that leads it to Cross (by default; any
// two terms can be compared), and there are two aggregations. With g1 and g2
// the gradients of two terms' losses of one position alone with respect to all
// of the adapter's tensors, A and B:
//
//   by position   g1 . g2 and cos(g1, g2) of each position, averaged over a
//                 problem's positions, then over problems: do the terms agree
//                 where they meet?
//   over all      G1 . G2 and cos(G1, G2) of the mean gradients, G the mean
//                 over problems of the mean over a problem's positions: do the
//                 updates agree that they add up to?
//
// Every problem counts alike in both, however many positions it has. Intervals
// draw problems with all their positions (BootstrapOf), the same ones for every
// measure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/data/confidence_interval.h"

namespace dapd {

// Of one position.
struct PositionProducts {
  size_t problem = 0;  // index, from 0 without gaps
  double dot = 0.0;    // g1 . g2
  double first_norm = 0.0;
  double second_norm = 0.0;

  // Nothing where a gradient is zero, as where every entry is clipped.
  std::optional<double> Cosine() const;
};

// Dot products between sums of gradients. A sum is of the mean gradients of
// some problems, of one each where memory suffices; both terms' sums are over
// the same problems.
struct GradientProducts {
  std::vector<int64_t> problems;  // in each sum
  // [n * n] of n sums, row by row: first . first, second . second, and row i,
  // column j: first_i . second_j.
  std::vector<double> first;
  std::vector<double> second;
  std::vector<double> cross;
};

struct CompatibilityReport {
  int64_t problems = 0;
  int64_t positions = 0;
  int64_t positions_without_cosine = 0;
  int64_t sums = 0;  // that the intervals over all draw
  struct ByPosition {
    Interval dot;
    Interval cosine;    // of the positions that have one; 0 if none has
    Interval positive;  // share of positions with dot > 0
    Interval first_norm;
    Interval second_norm;
  };
  ByPosition by_position;
  struct OverAll {
    Interval dot;
    Interval cosine;  // 0 where a mean gradient is zero
    double first_norm = 0.0;
    double second_norm = 0.0;
  };
  OverAll over_all;
};

// At least one position of every problem, and one sum.
CompatibilityReport SummarizeCompatibility(
    const std::vector<PositionProducts>& positions,
    const GradientProducts& products,
    uint64_t seed);

// {"problems", "positions", "positions_without_cosine", "sums", "by_position":
// {"dot", "cosine", "positive", "first_norm", "second_norm"}, "over_all":
// {"dot", "cosine", "first_norm", "second_norm"}}; measures with an interval as
// {"mean", "low", "high"}.
nlohmann::ordered_json ToJson(const CompatibilityReport& report);

// The same for people, a table of several lines.
std::string ToText(const CompatibilityReport& report);

}  // namespace dapd
