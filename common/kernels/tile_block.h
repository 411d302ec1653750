// Blocks of products by tiles of bfloat16 pairs, as AMX multiplies them (Intel,
// "Intrinsics for Advanced Matrix Extensions"): 16 rows of 16 pairs times 16
// rows of pairs of 16 columns. A block is two tiles high and two wide, so that
// each loaded tile is used twice.
//
// A class Tiles wraps the instructions. It holds a block of C of up to
// kTileBlock rows and kTileBlock columns, in float32, on the thread that made
// it, for as long as it lives. A thread may have one at a time.
// * Tiles(rows) takes 1 to kTileBlock rows; the block's content is undefined.
// * Clear() sets the block to 0.
// * MultiplyAdd(a, stride, b) adds to it `rows` rows of A from `a` on, `stride`
//   words apart, kTileWords words of each, times as many steps of B, kTileBlock
//   words each.
// * Store(c, stride) writes `rows` rows, `stride` floats apart.
// A word is a pair of bfloat16 neighbours along k. Pointers need no alignment,
// but lines that cross a cache line's end take twice the time.
//
// Each element is summed by itself: the rows and columns beside it do not
// change a bit. Within a MultiplyAdd the even and the odd entries of the pairs
// are summed separately; denormal numbers count as zero.
//
// Only sources that are compiled once per CPU level may include this file.
#pragma once

#include <cstdint>

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

constexpr int64_t kTileBlock = 32;
// Number of words along k, pairs of bfloat16, in a row of a tile. A tile has as
// many rows.
constexpr int64_t kTileWords = 16;

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
