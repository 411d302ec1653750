// Draws the problems that a probe measures, and the token positions of their
// answers. All functions depend on their arguments only, so the same call draws
// the same places for every model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dapd {

// Returns the rows of each of `count` problems, or of all problems if there are
// fewer. `texts` has the problem that each row answers; rows with the same text
// belong to the same problem. Problems are drawn without replacement, and the
// rows of each problem are in order.
std::vector<std::vector<size_t>> DrawProblems(
    const std::vector<std::string>& texts, int64_t count, uint64_t seed);

// Holds the positions [begin, end) among an answer's scored tokens; empty if
// end <= begin.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns the positions among `tokens` scored tokens without the first, the
// last and the `skip_tokens` first ones. At the first token, views differ by
// the text that their templates write in front of an answer; the last token
// ends the answer.
PositionRange InteriorPositions(int64_t tokens, int64_t skip_tokens);

struct DrawnPosition {
  size_t answer = 0;  // index into the ranges
  int64_t position = 0;

  bool operator==(const DrawnPosition&) const = default;
};

// Draws `count` positions from the answers to a problem, or all if there are
// fewer, in the order of answers and positions. `problem`, the index of the
// problem, and `seed` decide the draw.
std::vector<DrawnPosition> DrawPositions(
    const std::vector<PositionRange>& answers,
    int64_t count,
    uint64_t seed,
    int64_t problem);

}  // namespace dapd
