// Blocks of products by tiles of bfloat16 pairs, as AMX multiplies them (Intel,
// "Intrinsics for Advanced Matrix Extensions"): 16 rows of 16 pairs times 16
// rows of pairs of 16 columns. A block is two tiles high and two wide, so that
// each tile that is loaded is used twice.
//
// What needs the instructions is a class Tiles, which holds a block of C of up
// to kTileBlock rows and kTileBlock columns, in float32, on the thread that
// made it, for as long as it lives; one at a time a thread:
// * Tiles(rows): 1 to kTileBlock of them; what the block holds is undefined.
// * Clear(): the block is 0.
// * MultiplyAdd(a, stride, b) adds to it `rows` rows of A from `a` on, `stride`
//   words apart, kTileWords words of each, times as many steps of B, kTileBlock
//   words each.
// * Store(c, stride) writes `rows` rows, `stride` floats apart.
// A word is a pair of bfloat16 neighbours along k. Pointers need no alignment,
// but lines that cross a cache line's end cost twice the time.
//
// Each element is summed by itself: rows and columns beside it do not change a
// bit. Within a MultiplyAdd the even entries of the pairs and the odd ones are
// summed apart; denormal numbers count as zero.
//
// Included by what is compiled once per CPU level, only.
#pragma once

#include <cstdint>

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

constexpr int64_t kTileBlock = 32;
// Words along k, pairs of bfloat16, that a tile has. It has as many rows.
constexpr int64_t kTileWords = 16;

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
