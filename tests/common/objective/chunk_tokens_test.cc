#include "common/objective/chunk_tokens.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr int64_t kQwenRow = int64_t{151'936} * 4;
constexpr int64_t kOnCpu = int64_t{336} << 20;
constexpr int64_t kOnGpu = int64_t{896} << 20;

TEST(ChunkTokensTest, ChunksAreAboutTheSame) {
  EXPECT_EQ(ChunkTokens(256, 5 * kQwenRow, kOnCpu, 1), 86) << "three of 115";
  EXPECT_EQ(ChunkTokens(115, 5 * kQwenRow, kOnCpu, 1), 115);
  EXPECT_EQ(ChunkTokens(7, 1, 1'000, 1), 7);
}

TEST(ChunkTokensTest, ThereIsAlwaysAToken) {
  EXPECT_EQ(ChunkTokens(3, 1'000, 10, 1), 1);
  EXPECT_EQ(ChunkTokens(3, 1'000, 10, 8), 1);
}

// 309 tokens have room.
TEST(ChunkTokensTest, OnAGpuChunksFillWholeWaves) {
  EXPECT_EQ(ChunkTokens(8'192, 5 * kQwenRow, kOnGpu, 8), 256);
  EXPECT_EQ(ChunkTokens(8'192, 5 * kQwenRow, kOnGpu, 7), 252);
  EXPECT_EQ(ChunkTokens(8'192, 5 * kQwenRow, kOnGpu, 216), 216) << "an A100";
  EXPECT_EQ(ChunkTokens(300, 5 * kQwenRow, kOnGpu, 8), 152);
  EXPECT_EQ(ChunkTokens(5, 5 * kQwenRow, kOnGpu, 8), 8) << "and no fewer left";
}

TEST(ChunkTokensTest, WhatMemoryHasRoomForIsTheMost) {
  EXPECT_EQ(ChunkTokens(1'000, 16 * kQwenRow, kOnGpu, 264), 64)
      << "less than a wave, a whole tile of 96";
  EXPECT_EQ(ChunkTokens(1'000, 40 * kQwenRow, kOnGpu, 264), 38);
}

}  // namespace
}  // namespace dapd
