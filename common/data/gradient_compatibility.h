// Measures gradient compatibility: whether two terms of the objective pull the
// adapter in the same direction at the same token position.
//
// The paper (DAPD, arXiv 2608.01735) asks this about the Inference Anchor and
// the self-conditioned bridge, at single interior positions and over all of
// them, with dot products and cosines. The released code does not contain it,
// and the paper's definitions were not available, so the definitions here are
// this project's. The bridge is the view Self, and its term leads Self to Cross
// by default; any two terms can be compared. There are two aggregations. Let g1
// and g2 be the gradients of the two terms' losses of one position alone, with
// respect to all of the adapter's tensors A and B:
//
//   by position   g1 . g2 and cos(g1, g2) of each position, averaged over a
//                 problem's positions, then over problems: do the terms agree
//                 where they meet?
//   over all      G1 . G2 and cos(G1, G2) of the mean gradients, where G is the
//                 mean over problems of the mean over a problem's positions: do
//                 the updates agree that the positions add up to?
//
// Every problem has the same weight in both, however many positions it has.
// Intervals draw problems with all their positions (BootstrapOf), and every
// measure uses the same draws.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/data/confidence_interval.h"

namespace dapd {

// Holds the products of one position.
struct PositionProducts {
  size_t problem = 0;  // index, from 0 without gaps
  double dot = 0.0;    // g1 . g2
  double first_norm = 0.0;
  double second_norm = 0.0;

  // Returns nothing if a gradient is zero, for example where every entry is
  // clipped.
  std::optional<double> Cosine() const;
};

// Holds dot products between sums of gradients. Each sum adds the mean
// gradients of some problems, of a single problem if memory suffices. The sums
// of both terms are over the same problems.
struct GradientProducts {
  std::vector<int64_t> problems;  // number of problems in each sum
  // [n * n] for n sums, row by row: first . first, second . second, and first_i
  // . second_j in row i, column j.
  std::vector<double> first;
  std::vector<double> second;
  std::vector<double> cross;
};

struct CompatibilityReport {
  int64_t problems = 0;
  int64_t positions = 0;
  int64_t positions_without_cosine = 0;
  int64_t sums = 0;  // number of sums that the intervals over all draw from
  struct ByPosition {
    Interval dot;
    Interval cosine;    // over the positions that have one; 0 without any
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

// Needs at least one position of every problem, and at least one sum.
CompatibilityReport SummarizeCompatibility(
    const std::vector<PositionProducts>& positions,
    const GradientProducts& products,
    uint64_t seed);

// Returns {"problems", "positions", "positions_without_cosine", "sums",
// "by_position": {"dot", "cosine", "positive", "first_norm", "second_norm"},
// "over_all": {"dot", "cosine", "first_norm", "second_norm"}}. A measure with
// an interval is {"mean", "low", "high"}.
nlohmann::ordered_json ToJson(const CompatibilityReport& report);

// Returns the report as a table of several lines for people.
std::string ToText(const CompatibilityReport& report);

}  // namespace dapd
