#include "common/generation/length_forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace dapd {
namespace {

// If no answer is open, the curve falls to 0 at the longest ended answer. An
// answer may still become longer.
constexpr double kLeastShare = 1e-6;

}  // namespace

void LengthForecast::Add(int64_t tokens) {
  if (ended_.size() < kMostAnswers) {
    ended_.push_back(tokens);
    return;
  }
  ended_[next_] = tokens;
  next_ = (next_ + 1) % kMostAnswers;
}

LengthForecast::Curve LengthForecast::Estimate(
    std::span<const int64_t> open) const {
  std::vector<int64_t> ended = ended_;
  std::vector<int64_t> still_open(open.begin(), open.end());
  std::ranges::sort(ended);
  std::ranges::sort(still_open);
  Curve curve;
  curve.points_.emplace_back();
  for (auto at = ended.begin(); at != ended.end();) {
    const auto next = std::ranges::upper_bound(at, ended.end(), *at);
    // The answers that are known to have reached this length.
    const auto reached =
        std::distance(at, ended.end()) +
        std::distance(std::ranges::lower_bound(still_open, *at),
                      still_open.end());
    const double ends = static_cast<double>(std::distance(at, next)) /
                        static_cast<double>(reached);
    curve.points_.push_back(
        {*at, std::max(kLeastShare, curve.points_.back().share * (1 - ends))});
    at = next;
  }
  const auto sum = [](const std::vector<int64_t>& tokens) {
    return std::accumulate(tokens.begin(), tokens.end(), 0.0);
  };
  curve.tail_ =
      (sum(ended) + sum(still_open)) / static_cast<double>(ended.size());
  return curve;
}

double LengthForecast::Curve::ShareAbove(int64_t tokens) const {
  const auto next =
      std::ranges::upper_bound(points_, tokens, {}, &Point::tokens);
  const Point& last = *std::prev(next);
  if (next != points_.end()) return last.share;
  return last.share *
         std::exp(-static_cast<double>(tokens - last.tokens) / tail_);
}

}  // namespace dapd
