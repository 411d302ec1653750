#include "common/objective/chunk_tokens.h"

#include <algorithm>
#include <cstdint>
#include <vector>

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

// There is room for 309 tokens.
TEST(ChunkTokensTest, OnAGpuChunksFillWholeWaves) {
  EXPECT_EQ(ChunkTokens(8'192, 5 * kQwenRow, kOnGpu, 8), 256);
  EXPECT_EQ(ChunkTokens(8'192, 5 * kQwenRow, kOnGpu, 216), 216) << "an A100";
  EXPECT_EQ(ChunkTokens(300, 5 * kQwenRow, kOnGpu, 8), 152);
  EXPECT_EQ(ChunkTokens(5, 5 * kQwenRow, kOnGpu, 8), 8) << "and no fewer left";
}

// An H100 that lacks a multiprocessor in one of its groups has room for seven
// clusters.
TEST(ChunkTokensTest, TilesStayWholeWhateverFewTokensAreTakenAtATime) {
  for (const int64_t at_a_time : {1, 3, 7, 8, 63}) {
    EXPECT_EQ(ChunkTokens(8'192, 5 * kQwenRow, kOnGpu, at_a_time),
              at_a_time == 1 ? 304 : 256)
        << at_a_time;
  }
  EXPECT_EQ(ChunkTokens(1'024, 5 * kQwenRow, kOnGpu, 7), 256) << "four, not 5";
  EXPECT_EQ(ChunkTokens(8'192, 5 * kQwenRow, kOnGpu, 66), 198) << "a wave";
  EXPECT_EQ(ChunkTokens(1'000, 40 * kQwenRow, kOnGpu, 7), 35) << "no tile";
}

// Every token has `rows` rows, of at most two students, under a head of this
// shape. All answers have the greatest length, and there are as many terms as
// the kernels take.
void ExpectAGigabyte(int64_t vocabulary, int64_t hidden, int64_t rows) {
  constexpr int64_t kWorkspace = int64_t{32} << 20;
  constexpr int64_t kTokens = 65'536;
  constexpr int64_t kTerms = 8;
  const int64_t students = std::min<int64_t>(rows, 2);
  const HeadLossShape shape{.vocabulary = vocabulary,
                            .hidden = hidden,
                            .source_bytes = rows * hidden * 2,
                            .rows = rows,
                            .gradients = students,
                            .supports = kTerms * 100};
  const int64_t kept = kTokens * (kTerms * 32 + students * 4);
  for (const int64_t at_a_time : {8, 216}) {
    const int64_t chunk = ChunkTokens(
        kTokens, ChunkBytesOfToken(shape), GpuChunkBytes(kept), at_a_time);
    EXPECT_LE(chunk * ChunkBytesOfToken(shape) + kept + kWorkspace,
              1'000'000'000)
        << rows << " rows of " << vocabulary << ", hidden size " << hidden;
  }
}

TEST(ChunkTokensTest, ATokensBytesAreThoseOfAllThatIsComputedOfIt) {
  const HeadLossShape shape{.vocabulary = 1'000,
                            .hidden = 10,
                            .source_bytes = 3 * 10 * 2 + 24 * 4,
                            .rows = 5,
                            .gradients = 2,
                            .supports = 100};
  EXPECT_EQ(ChunkBytesOfToken(shape),
            5 * 1'000 * 4 + 3 * 10 * 2 + 24 * 4 + 2 * 10 * 2 + 100 * (4 + 8));
}

TEST(ChunkTokensTest, ACallTakesAGigabyteOfAGpuWhateverItsShape) {
  for (const int64_t vocabulary : {32'000, 151'936, 262'144}) {
    for (const int64_t hidden : {576, 2'560, 8'192}) {
      for (int64_t rows = 1; rows <= 16; ++rows) {
        ExpectAGigabyte(vocabulary, hidden, rows);
      }
    }
  }
}

// The expected numbers are the most tokens whose logits are whole tiles in 933
// MB, except for five and for seven sources.
TEST(ChunkTokensTest, AGigabyteHasRoomForWholeTilesOfQwensRows) {
  constexpr int64_t kKept = int64_t{40'960} * (3 * 32 + 2 * 4);
  const std::vector<int64_t> expected = {512, 384, 256, 256, 192, 192};
  for (const int64_t hidden : {2'560, 5'120}) {
    for (int64_t rows = 3; rows <= 8; ++rows) {
      const HeadLossShape shape{.vocabulary = 151'936,
                                .hidden = hidden,
                                .source_bytes = rows * hidden * 2,
                                .rows = rows,
                                .gradients = 2};
      EXPECT_EQ(ChunkTokens(/*tokens=*/49'152,
                            ChunkBytesOfToken(shape),
                            GpuChunkBytes(kKept),
                            /*at_a_time=*/8),
                expected[static_cast<size_t>(rows - 3)])
          << rows << " rows, hidden size " << hidden;
    }
  }
}

TEST(ChunkTokensTest, WhatMemoryHasRoomForIsTheMost) {
  EXPECT_EQ(ChunkTokens(1'000, 16 * kQwenRow, kOnGpu, 264), 64)
      << "less than a wave, a whole tile of 96";
  EXPECT_EQ(ChunkTokens(1'000, 40 * kQwenRow, kOnGpu, 264), 38);
}

}  // namespace
}  // namespace dapd
