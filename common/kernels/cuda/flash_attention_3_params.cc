#include "common/kernels/cuda/flash_attention_3_params.h"

namespace dapd {
namespace {

// From this number of sequences on the kernel that orders them has several
// blocks, and the next kernel must not start before all have ended.
constexpr int64_t kMostOrderedAtOnce = 992;

template <typename T>
T* At(void* memory, int64_t bytes) {
  return reinterpret_cast<T*>(static_cast<char*>(memory) + bytes);
}

// Kernels do not write through these pointers.
int* Writable(const int32_t* data) { return const_cast<int32_t*>(data); }

// Sets what both passes need.
void SetCommon(const FlashAttention3Args& args,
               int multiprocessors,
               Flash_fwd_params* params) {
  const FlashAttention3Shape& shape = args.shape;
  params->q_ptr = args.q.data;
  params->q_row_stride = args.q.row_stride;
  params->q_head_stride = args.q.head_stride;
  params->k_ptr = args.k.data;
  params->k_row_stride = args.k.row_stride;
  params->k_head_stride = args.k.head_stride;
  params->v_ptr = args.v.data;
  params->v_row_stride = args.v.row_stride;
  params->v_head_stride = args.v.head_stride;
  params->v_dim_stride = 1;
  params->o_ptr = args.out.data;
  params->o_row_stride = args.out.row_stride;
  params->o_head_stride = args.out.head_stride;
  params->softmax_lse_ptr = args.logsumexp;

  params->b = params->b_k = static_cast<int>(shape.sequences);
  params->h = static_cast<int>(shape.heads);
  params->h_k = static_cast<int>(shape.kv_heads);
  params->seqlen_q = static_cast<int>(shape.longest_q);
  params->seqlen_k = static_cast<int>(shape.longest_k);
  params->total_q = static_cast<int>(shape.q_rows);
  params->total_k = static_cast<int>(shape.k_rows);
  params->d = params->d_rounded = static_cast<int>(shape.head_dim);
  params->dv = params->dv_rounded = static_cast<int>(shape.head_dim);
  params->cu_seqlens_q = Writable(args.q_offsets);
  params->cu_seqlens_k = Writable(args.k_offsets);
  params->seqused_k = Writable(args.k_tokens);

  params->scale_softmax = args.scale;
  params->is_bf16 = true;
  params->is_causal = true;
  // A causal window begins before every key.
  params->window_size_left = params->seqlen_k - 1;
  params->window_size_right = 0;
  params->p_dropout = 1.0F;  // of an entry that is kept
  params->page_size = 1;
  params->num_splits = 1;
  params->arch = 90;
  params->num_sm = multiprocessors;
}

}  // namespace

Flash_fwd_params ForwardParamsOf(const FlashAttention3Args& args,
                                 int multiprocessors) {
  Flash_fwd_params params = {};
  SetCommon(args, multiprocessors, &params);
  const FlashAttention3ForwardMemory memory = ForwardMemoryOf(args.shape);
  int* numbers = static_cast<int*>(args.memory);
  params.num_splits_dynamic_ptr = numbers + memory.splits;
  params.num_m_blocks_ptr = numbers + memory.blocks;
  params.varlen_batch_idx_ptr = numbers + memory.order;
  params.num_nheads_in_l2_ptr = numbers + memory.heads_in_l2;
  params.tile_count_semaphore = numbers + memory.next_tile;
  params.tile_count_semaphore_offset = static_cast<int>(memory.next_tile);
  params.varlen_sort_batches = true;
  params.head_swizzle = true;
  params.prepare_varlen_pdl = args.shape.sequences <= kMostOrderedAtOnce;
  return params;
}

Flash_bwd_params BackwardParamsOf(const FlashAttention3BackwardArgs& args,
                                  int multiprocessors) {
  Flash_bwd_params params = {};
  SetCommon(args.args, multiprocessors, &params);
  params.do_ptr = args.grad_out.data;
  params.do_row_stride = args.grad_out.row_stride;
  params.do_head_stride = args.grad_out.head_stride;
  params.dq_ptr = args.grad_q.data;
  params.dq_row_stride = args.grad_q.row_stride;
  params.dq_head_stride = args.grad_q.head_stride;
  params.dk_ptr = args.grad_k.data;
  params.dk_row_stride = args.grad_k.row_stride;
  params.dk_head_stride = args.grad_k.head_stride;
  params.dv_ptr = args.grad_v.data;
  params.dv_row_stride = args.grad_v.row_stride;
  params.dv_head_stride = args.grad_v.head_stride;

  void* memory = args.args.memory;
  const FlashAttention3BackwardMemory places =
      BackwardMemoryOf(args.args.shape, args.is_deterministic);
  params.dk_accum_ptr = At<float>(memory, places.grad_k);
  params.dv_accum_ptr = At<float>(memory, places.grad_v);
  params.dq_accum_ptr = At<float>(memory, places.grad_q);
  params.dsoftmax_sum = At<float>(memory, places.row_sums);
  params.softmax_lse_log2_ptr = At<float>(memory, places.logsumexp);
  params.dq_semaphore = At<int>(memory, places.q_locks);
  params.deterministic = args.is_deterministic;
  if (args.is_deterministic) {
    params.dk_semaphore = At<int>(memory, places.k_locks);
    params.dv_semaphore = At<int>(memory, places.v_locks);
  }
  return params;
}

}  // namespace dapd
