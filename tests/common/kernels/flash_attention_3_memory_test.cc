#include "common/kernels/flash_attention_3_memory.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr FlashAttention3Shape kShape = {.sequences = 5,
                                         .q_rows = 1021,
                                         .k_rows = 1300,
                                         .longest_q = 700,
                                         .longest_k = 900,
                                         .heads = 32,
                                         .kv_heads = 8,
                                         .head_dim = 128};

// The kernels begin sequence i at a whole tile behind the rows and a tile for
// each sequence in front of it (SeqlenInfo of hopper/seqlen.h), and they write
// whole tiles.
TEST(FlashAttention3MemoryTest, EverySequenceInWholeTilesFits) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int64_t> tokens(0, 300);
  for (const int64_t tile : {64, 80, 128}) {
    for (int64_t sequences = 1; sequences < 40; ++sequences) {
      std::vector<int64_t> offsets = {0};
      for (int64_t i = 0; i < sequences; ++i) {
        offsets.push_back(offsets.back() + tokens(random));
      }
      int64_t last_end = 0;
      for (int64_t i = 0; i < sequences; ++i) {
        const int64_t begin = (offsets[i] + i * tile) / tile * tile;
        const int64_t count = offsets[i + 1] - offsets[i];
        EXPECT_GE(begin, last_end) << "sequence " << i;
        last_end = begin + (count + tile - 1) / tile * tile;
      }
      EXPECT_LE(last_end, RowsInTiles(offsets.back(), sequences, tile));
    }
  }
}

TEST(FlashAttention3MemoryTest, ForwardHasFourVectorsAndACounter) {
  const FlashAttention3ForwardMemory memory = ForwardMemoryOf(kShape);
  EXPECT_EQ(memory.splits, 0);
  EXPECT_EQ(memory.blocks, 8);
  EXPECT_EQ(memory.order, 16);
  EXPECT_EQ(memory.heads_in_l2, 24);
  EXPECT_EQ(memory.next_tile, 32);
  EXPECT_EQ(memory.bytes, 33 * 4);
}

TEST(FlashAttention3MemoryTest, BackwardHasSumsInFloat32) {
  const FlashAttention3BackwardMemory memory = BackwardMemoryOf(kShape, false);
  const int64_t q_rows = 32 * 1344;  // 1,021 + 5 x 64 in tiles of 64
  const int64_t k_rows = 8 * 2048;   // 1,300 + 5 x 128 in tiles of 128
  EXPECT_EQ(memory.grad_k, 0);
  EXPECT_EQ(memory.grad_v, k_rows * 128 * 4);
  EXPECT_EQ(memory.cleared, 2 * k_rows * 128 * 4);
  EXPECT_EQ(memory.grad_q, memory.cleared);
  EXPECT_EQ(memory.row_sums, memory.grad_q + q_rows * 128 * 4);
  EXPECT_EQ(memory.logsumexp, memory.row_sums + q_rows * 4);
  EXPECT_EQ(memory.q_locks, memory.logsumexp + q_rows * 4);
  EXPECT_EQ(memory.bytes, memory.q_locks + 28 * 256) << "11 x 5 x 32 x 4";
}

TEST(FlashAttention3MemoryTest, AFixedOrderAddsLocksThatAreCleared) {
  const FlashAttention3BackwardMemory any = BackwardMemoryOf(kShape, false);
  const FlashAttention3BackwardMemory fixed = BackwardMemoryOf(kShape, true);
  // 8 tiles of 128 keys, 5 sequences and 8 heads.
  EXPECT_EQ(fixed.v_locks - fixed.k_locks, 8 * 5 * 8 * 4);
  EXPECT_GE(fixed.cleared - fixed.v_locks, 8 * 5 * 8 * 4);
  EXPECT_EQ(fixed.bytes - any.bytes, fixed.cleared - any.cleared);
}

TEST(FlashAttention3MemoryTest, EveryPlaceIsAligned) {
  for (const int64_t head_dim : {64, 128, 256}) {
    FlashAttention3Shape shape = kShape;
    shape.head_dim = head_dim;
    const FlashAttention3BackwardMemory memory = BackwardMemoryOf(shape, true);
    for (const int64_t place : {memory.grad_v,
                                memory.k_locks,
                                memory.v_locks,
                                memory.cleared,
                                memory.grad_q,
                                memory.row_sums,
                                memory.logsumexp,
                                memory.q_locks}) {
      EXPECT_EQ(place % 256, 0) << head_dim;
    }
  }
}

}  // namespace
}  // namespace dapd
