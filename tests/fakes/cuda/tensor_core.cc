// The tensor cores' product and a load for it, made of exchanges between the
// lanes of a warp.

#include <array>
#include <bit>
#include <cstdint>
#include <tuple>
#include <utility>

#include "tests/fakes/cuda/cuda_runtime.h"
#include "tests/fakes/cuda/device.h"
#include "tests/fakes/cuda/warp_lanes.h"

namespace dapd::fake {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFFU;
constexpr int kLanesOfARow = 4;

// Two bfloat16 numbers, the first in the lower half.
using Numbers = std::array<double, 2>;

Numbers NumbersOf(uint32_t pair) {
  return {std::bit_cast<float>(pair << 16),
          std::bit_cast<float>(pair & 0xFFFF0000U)};
}

double Dot(uint32_t a, uint32_t b) {
  const Numbers x = NumbersOf(a);
  const Numbers y = NumbersOf(b);
  return x[0] * y[0] + x[1] * y[1];
}

// Returns two pairs that `lane` brought.
std::pair<uint32_t, uint32_t> Of(int lane,
                                 uint32_t first,
                                 uint32_t second,
                                 Site site) {
  const uint64_t both = ShuffleFrom(
      lane, kAllLanes, uint64_t{second} << 32 | uint64_t{first}, site);
  return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32)};
}

}  // namespace

void MultiplyTile(const uint32_t (&a)[4],
                  const uint32_t (&b)[2],
                  float (&sums)[4],
                  const char* file,
                  int line) {
  const Site site{file, line};
  const int lane = LaneIndex();
  // In a these are the rows lane / 4 and lane / 4 + 8; in b the rows of two
  // columns of the sums.
  const int a_row = lane / kLanesOfARow * kLanesOfARow;
  const int b_row = lane % kLanesOfARow * 2 * kLanesOfARow;
  double totals[4] = {sums[0], sums[1], sums[2], sums[3]};
  for (int i = 0; i < kLanesOfARow; ++i) {
    // These are columns 2i and 2i + 1 of both rows, then columns 2i + 8 and 2i
    // + 9.
    const auto [upper, lower] = Of(a_row + i, a[0], a[1], site);
    const auto [upper_8, lower_8] = Of(a_row + i, a[2], a[3], site);
    for (int col = 0; col < 2; ++col) {
      const auto [here, here_8] =
          Of(b_row + col * kLanesOfARow + i, b[0], b[1], site);
      totals[col] += Dot(upper, here) + Dot(upper_8, here_8);
      totals[2 + col] += Dot(lower, here) + Dot(lower_8, here_8);
    }
  }
  for (int i = 0; i < 4; ++i) sums[i] = static_cast<float>(totals[i]);
}

void MultiplyBoxes(const void* a, const void* b, float (&sums)[16]) {
  constexpr int kNumbers = 64;      // of a row
  constexpr int kInstruction = 16;  // numbers that an instruction adds up
  constexpr size_t kPiece = 16;     // bytes that stay together
  using Row = std::array<double, kNumbers>;
  const auto row_of = [](const void* box, int row) {
    Row numbers;
    for (size_t piece = 0; piece < sizeof(uint16_t) * kNumbers / kPiece;
         ++piece) {
      const uintptr_t at = reinterpret_cast<uintptr_t>(box) +
                           static_cast<uintptr_t>(row) * 2 * kNumbers +
                           piece * kPiece;
      const auto* const pairs =
          reinterpret_cast<const uint32_t*>(at ^ (at >> 7 & 7) << 4);
      WatchAccess(pairs, kPiece, Access::kRead);
      for (size_t i = 0; i < kPiece / sizeof(uint32_t); ++i) {
        const Numbers pair = NumbersOf(pairs[i]);
        numbers[(piece * 4 + i) * 2] = pair[0];
        numbers[(piece * 4 + i) * 2 + 1] = pair[1];
      }
    }
    return numbers;
  };
  const int thread = static_cast<int>(ThreadIndex().x) % 128;
  const int lane = thread % 32;
  const int first = thread / 32 * 16 + lane / kLanesOfARow;
  const std::array<Row, 2> rows = {row_of(a, first), row_of(a, first + 8)};
  for (int col = 0; col < 8; ++col) {
    const Row other =
        row_of(b, col / 2 * 8 + lane % kLanesOfARow * 2 + col % 2);
    for (int half = 0; half < 2; ++half) {
      float& sum = sums[col / 2 * 4 + half * 2 + col % 2];
      for (int k = 0; k < kNumbers; k += kInstruction) {
        double total = sum;
        for (int i = k; i < k + kInstruction; ++i) {
          const auto at = static_cast<size_t>(i);
          total += rows[static_cast<size_t>(half)][at] * other[at];
        }
        sum = static_cast<float>(total);
      }
    }
  }
}

void TransposeTiles(const uint32_t (&row)[4],
                    uint32_t (&tiles)[4],
                    const char* file,
                    int line) {
  constexpr int kRows = 8;  // of a tile, which has as many columns
  const Site site{file, line};
  const int lane = LaneIndex();
  const int column = lane / kLanesOfARow;
  for (int tile = 0; tile < 4; ++tile) {
    tiles[tile] = 0;
    for (int i = 0; i < 2; ++i) {
      const int from = tile * kRows + lane % kLanesOfARow * 2 + i;
      std::array<uint32_t, 4> pairs = {};
      std::tie(pairs[0], pairs[1]) = Of(from, row[0], row[1], site);
      std::tie(pairs[2], pairs[3]) = Of(from, row[2], row[3], site);
      const uint32_t number =
          pairs[static_cast<size_t>(column / 2)] >> (column % 2 * 16) & 0xFFFFU;
      tiles[tile] |= number << (i * 16);
    }
  }
}

}  // namespace dapd::fake
