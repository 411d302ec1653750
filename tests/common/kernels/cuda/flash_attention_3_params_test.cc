// Tests the parameters of FlashAttention-3's kernels on the host: that each
// argument is at its place, and that what is not used is off.
#include "common/kernels/cuda/flash_attention_3_params.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr int kMultiprocessors = 132;

// Nothing reads these addresses.
void* Address(int64_t number) { return reinterpret_cast<void*>(number << 12); }

FlashAttention3Rows Rows(int64_t number) {
  return {Address(number), 1000 * number + 1, 100 * number + 2};
}

// Every number differs from every other.
FlashAttention3Args Arguments(int64_t head_dim) {
  return {.shape = {.sequences = 5,
                    .q_rows = 1021,
                    .k_rows = 1300,
                    .longest_q = 700,
                    .longest_k = 900,
                    .heads = 32,
                    .kv_heads = 8,
                    .head_dim = head_dim},
          .q = Rows(1),
          .k = Rows(2),
          .v = Rows(3),
          .out = Rows(4),
          .logsumexp = static_cast<float*>(Address(5)),
          .q_offsets = static_cast<int32_t*>(Address(6)),
          .k_offsets = static_cast<int32_t*>(Address(7)),
          .k_tokens = static_cast<int32_t*>(Address(8)),
          .scale = 0.25F,
          .memory = Address(9)};
}

int64_t BytesBehind(const void* begin, const void* pointer) {
  return static_cast<const char*>(pointer) - static_cast<const char*>(begin);
}

void ExpectCommon(const Flash_fwd_params& params,
                  const FlashAttention3Args& args) {
  EXPECT_EQ(params.q_ptr, args.q.data);
  EXPECT_EQ(params.q_row_stride, 1001);
  EXPECT_EQ(params.q_head_stride, 102);
  EXPECT_EQ(params.k_ptr, args.k.data);
  EXPECT_EQ(params.k_row_stride, 2001);
  EXPECT_EQ(params.k_head_stride, 202);
  EXPECT_EQ(params.v_ptr, args.v.data);
  EXPECT_EQ(params.v_row_stride, 3001);
  EXPECT_EQ(params.v_head_stride, 302);
  EXPECT_EQ(params.v_dim_stride, 1);
  EXPECT_EQ(params.o_ptr, args.out.data);
  EXPECT_EQ(params.o_row_stride, 4001);
  EXPECT_EQ(params.o_head_stride, 402);
  EXPECT_EQ(params.softmax_lse_ptr, args.logsumexp);
  EXPECT_EQ(params.cu_seqlens_q, args.q_offsets);
  EXPECT_EQ(params.cu_seqlens_k, args.k_offsets);
  EXPECT_EQ(params.seqused_k, args.k_tokens);
  EXPECT_EQ(params.seqused_q, nullptr);

  EXPECT_EQ(params.b, 5);
  EXPECT_EQ(params.h, 32);
  EXPECT_EQ(params.h_k, 8);
  EXPECT_EQ(params.seqlen_q, 700);
  EXPECT_EQ(params.seqlen_k, 900);
  EXPECT_EQ(params.total_q, 1021);
  EXPECT_EQ(params.total_k, 1300);
  for (const int width :
       {params.d, params.d_rounded, params.dv, params.dv_rounded}) {
    EXPECT_EQ(width, args.shape.head_dim);
  }
  EXPECT_EQ(params.scale_softmax, 0.25F);
  EXPECT_EQ(params.num_sm, kMultiprocessors);
  EXPECT_EQ(params.arch, 90);
  EXPECT_TRUE(params.is_bf16);
  EXPECT_TRUE(params.is_causal);
  EXPECT_EQ(params.window_size_left, 899);
  EXPECT_EQ(params.window_size_right, 0);

  // Everything else is off.
  EXPECT_FALSE(params.is_local || params.is_e4m3 || params.is_fp32);
  EXPECT_FALSE(params.pack_gqa || params.pagedkv_tma);
  EXPECT_EQ(params.softcap, 0.0F);
  EXPECT_EQ(params.attention_chunk, 0);
  EXPECT_EQ(params.num_splits, 1);
  EXPECT_EQ(params.rotary_dim, 0);
  for (const void* unused : {static_cast<const void*>(params.page_table),
                             static_cast<const void*>(params.knew_ptr),
                             static_cast<const void*>(params.qv_ptr),
                             static_cast<const void*>(params.kv_batch_idx),
                             static_cast<const void*>(params.leftpad_k),
                             static_cast<const void*>(params.oaccum_ptr),
                             static_cast<const void*>(params.rotary_cos_ptr)}) {
    EXPECT_EQ(unused, nullptr);
  }
}

TEST(FlashAttention3ParamsTest, Forward) {
  for (const int64_t head_dim : {64, 128, 256}) {
    const FlashAttention3Args args = Arguments(head_dim);
    const Flash_fwd_params params = ForwardParamsOf(args, kMultiprocessors);
    ExpectCommon(params, args);
    // The kernels sort 5 sequences in vectors of 8.
    EXPECT_EQ(BytesBehind(args.memory, params.num_splits_dynamic_ptr), 0);
    EXPECT_EQ(BytesBehind(args.memory, params.num_m_blocks_ptr), 32);
    EXPECT_EQ(BytesBehind(args.memory, params.varlen_batch_idx_ptr), 64);
    EXPECT_EQ(BytesBehind(args.memory, params.num_nheads_in_l2_ptr), 96);
    EXPECT_EQ(BytesBehind(args.memory, params.tile_count_semaphore), 128);
    EXPECT_EQ(params.tile_count_semaphore_offset, 32);
    EXPECT_TRUE(params.varlen_sort_batches && params.head_swizzle);
    EXPECT_FALSE(params.skip_scheduler_metadata_computation);
    EXPECT_TRUE(params.prepare_varlen_pdl);
  }
}

// Above 992 sequences several blocks order them, and an early launch would read
// what only the first has written.
TEST(FlashAttention3ParamsTest, ManySequencesAreOrderedBeforeTheLaunch) {
  FlashAttention3Args args = Arguments(128);
  args.shape.sequences = 992;
  EXPECT_TRUE(ForwardParamsOf(args, kMultiprocessors).prepare_varlen_pdl);
  args.shape.sequences = 993;
  EXPECT_FALSE(ForwardParamsOf(args, kMultiprocessors).prepare_varlen_pdl);
}

TEST(FlashAttention3ParamsTest, Backward) {
  for (const bool is_deterministic : {false, true}) {
    const FlashAttention3BackwardArgs args = {
        .args = Arguments(128),
        .grad_out = Rows(11),
        .grad_q = Rows(12),
        .grad_k = Rows(13),
        .grad_v = Rows(14),
        .is_deterministic = is_deterministic};
    const Flash_bwd_params params = BackwardParamsOf(args, kMultiprocessors);
    ExpectCommon(params, args.args);
    EXPECT_EQ(params.do_ptr, args.grad_out.data);
    EXPECT_EQ(params.do_row_stride, 11001);
    EXPECT_EQ(params.do_head_stride, 1102);
    EXPECT_EQ(params.dq_ptr, args.grad_q.data);
    EXPECT_EQ(params.dq_row_stride, 12001);
    EXPECT_EQ(params.dq_head_stride, 1202);
    EXPECT_EQ(params.dk_ptr, args.grad_k.data);
    EXPECT_EQ(params.dk_row_stride, 13001);
    EXPECT_EQ(params.dk_head_stride, 1302);
    EXPECT_EQ(params.dv_ptr, args.grad_v.data);
    EXPECT_EQ(params.dv_row_stride, 14001);
    EXPECT_EQ(params.dv_head_stride, 1402);
    EXPECT_EQ(params.deterministic, is_deterministic);

    const FlashAttention3BackwardMemory places =
        BackwardMemoryOf(args.args.shape, is_deterministic);
    const void* memory = args.args.memory;
    EXPECT_EQ(BytesBehind(memory, params.dk_accum_ptr), places.grad_k);
    EXPECT_EQ(BytesBehind(memory, params.dv_accum_ptr), places.grad_v);
    EXPECT_EQ(BytesBehind(memory, params.dq_accum_ptr), places.grad_q);
    EXPECT_EQ(BytesBehind(memory, params.dsoftmax_sum), places.row_sums);
    EXPECT_EQ(BytesBehind(memory, params.softmax_lse_log2_ptr),
              places.logsumexp);
    EXPECT_EQ(BytesBehind(memory, params.dq_semaphore), places.q_locks);
    if (is_deterministic) {
      EXPECT_EQ(BytesBehind(memory, params.dk_semaphore), places.k_locks);
      EXPECT_EQ(BytesBehind(memory, params.dv_semaphore), places.v_locks);
    } else {
      EXPECT_EQ(params.dk_semaphore, nullptr);
      EXPECT_EQ(params.dv_semaphore, nullptr);
    }
  }
}

}  // namespace
}  // namespace dapd
