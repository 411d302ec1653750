// Implements tile_block.h with the instructions of AMX. The process must have
// asked the kernel for the tiles before (cpu_features.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/tile_block.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// Tiles 0 to 3 hold the block of C, row by row; tiles 4 and 5 hold A, tiles 6
// and 7 hold B. The intrinsics take tile numbers as literals only.
class AmxTiles {
 public:
  explicit AmxTiles(int64_t rows) : is_high_(rows > kTileWords) {
    const auto upper = static_cast<uint8_t>(is_high_ ? kTileWords : rows);
    // A tile that is not used must still have a row.
    const auto lower = static_cast<uint8_t>(is_high_ ? rows - kTileWords : 1);
    Configuration configuration;
    configuration.rows[0] = configuration.rows[1] = configuration.rows[4] =
        upper;
    configuration.rows[2] = configuration.rows[3] = configuration.rows[5] =
        lower;
    configuration.rows[6] = configuration.rows[7] = kTileWords;
    // The compiler's intrinsic claims to read only 8 of the 64 bytes, so the
    // compiler could drop the stores of the other bytes. This statement names
    // all 64.
    __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
  }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  void Clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }

  void MultiplyAdd(const uint32_t* a, int64_t stride, const uint32_t* b) {
    constexpr int64_t kWordBytes = sizeof(uint32_t);
    _tile_loadd(6, b, kTileBlock * kWordBytes);
    _tile_loadd(4, a, stride * kWordBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileWords, kTileBlock * kWordBytes);
    _tile_dpbf16ps(1, 4, 7);
    if (!is_high_) return;
    _tile_loadd(5, a + kTileWords * stride, stride * kWordBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }

  void Store(float* c, int64_t stride) const {
    const auto row_bytes = stride * static_cast<int64_t>(sizeof(float));
    _tile_stored(0, c, row_bytes);
    _tile_stored(1, c + kTileWords, row_bytes);
    if (!is_high_) return;
    _tile_stored(2, c + kTileWords * stride, row_bytes);
    _tile_stored(3, c + kTileWords * stride + kTileWords, row_bytes);
  }

 private:
  // LDTILECFG reads this layout.
  struct alignas(64) Configuration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};
  };

  const bool is_high_;  // more rows than one tile has
};

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
