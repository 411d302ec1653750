#include "common/data/probe_draws.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/data/epoch_order.h"

namespace dapd {

std::vector<std::vector<size_t>> DrawProblems(
    const std::vector<std::string>& texts, int64_t count, uint64_t seed) {
  std::vector<std::vector<size_t>> problems;
  std::map<std::string, size_t> index_of;
  for (size_t row = 0; row < texts.size(); ++row) {
    const auto [found, is_new] = index_of.emplace(texts[row], problems.size());
    if (is_new) problems.emplace_back();
    problems[found->second].push_back(row);
  }
  std::vector<std::vector<size_t>> drawn;
  const auto size = static_cast<int64_t>(problems.size());
  for (const int64_t problem : EpochOrder(size, seed, /*epoch=*/0)) {
    if (static_cast<int64_t>(drawn.size()) == count) break;
    drawn.push_back(std::move(problems[static_cast<size_t>(problem)]));
  }
  return drawn;
}

PositionRange InteriorPositions(int64_t tokens, int64_t skip_tokens) {
  return {std::max<int64_t>(1, skip_tokens), tokens - 1};
}

std::vector<DrawnPosition> DrawPositions(
    const std::vector<PositionRange>& answers,
    int64_t count,
    uint64_t seed,
    int64_t problem) {
  std::vector<DrawnPosition> all;
  for (size_t answer = 0; answer < answers.size(); ++answer) {
    for (int64_t p = answers[answer].begin; p < answers[answer].end; ++p) {
      all.push_back({answer, p});
    }
  }
  // Epoch 0 draws the problems.
  std::vector<int64_t> order =
      EpochOrder(static_cast<int64_t>(all.size()), seed, problem + 1);
  order.resize(std::min(order.size(), static_cast<size_t>(count)));
  // `all` is in the order of answers and positions.
  std::sort(order.begin(), order.end());
  std::vector<DrawnPosition> drawn;
  for (const int64_t index : order) {
    drawn.push_back(all[static_cast<size_t>(index)]);
  }
  return drawn;
}

}  // namespace dapd
