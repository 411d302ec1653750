// Which problems a probe looks at, and which token positions of their answers.
// Pure functions of their arguments, so the same call looks at the same places
// whatever model answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dapd {

// The rows of each of `count` problems, or of all if there are fewer: `texts`
// has the problem that each row answers, and rows with the same text are one
// problem. Drawn without replacement; each one's rows are in their order.
std::vector<std::vector<size_t>> DrawProblems(
    const std::vector<std::string>& texts, int64_t count, uint64_t seed);

// Positions [begin, end) among an answer's scored tokens; none if end <= begin.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Those of `tokens` scored tokens that are neither the first nor the last nor
// among the `skip_tokens` first ones: at the first token views differ by what
// their templates write in front of an answer, and the last one ends it.
PositionRange InteriorPositions(int64_t tokens, int64_t skip_tokens);

struct DrawnPosition {
  size_t answer = 0;  // index into the ranges
  int64_t position = 0;

  bool operator==(const DrawnPosition&) const = default;
};

// `count` positions out of those of all answers to a problem, or all if there
// are fewer, in the order of answers and positions. `problem`: its index, which
// with `seed` decides the draw.
std::vector<DrawnPosition> DrawPositions(
    const std::vector<PositionRange>& answers,
    int64_t count,
    uint64_t seed,
    int64_t problem);

}  // namespace dapd
