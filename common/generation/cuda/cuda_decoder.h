// A decoder that computes one token of every running sequence as one CUDA
// graph: embedding, layers, head, sampling and the step to the next position.
// The host launches steps and reads tokens after them; nothing waits for a
// token.
//
// Plain C over device pointers, as libdapd_cuda.so offers it (CudaSymbol);
// CudaDecodeModel (cuda_decode_model.h) makes it and CudaDecodeBackend
// (cuda_decode_backend.h) decodes with it; they own all memory. A decoder has a
// CUDA stream of its own that is ordered with LibTorch's default stream.
// Functions that return int give 0, or another number with the reason in
// `error` (kCudaErrorBytes). Not thread-safe.
//
// Ranks may share a model: each has a decoder of its own over its heads and its
// columns of the MLP, and they call the same functions in the same order. What
// they compute of a layer's two outputs is gathered in float32, by NCCL inside
// of the graph, and every rank adds it up in the order of the ranks. Not an
// all-reduce: in its sums the order depends on where in the buffer a row
// stands, and a sequence's bits would on its neighbours. Each rank computes its
// part of the vocabulary's logits where SplitsHead says so, gathers the others'
// and samples for itself, from the same numbers.
#pragma once

#include <cstdint>

#include "common/collective/nccl_api.h"
#include "common/kernels/cuda/launch.h"
#include "common/kernels/cuda/sampling.h"

namespace dapd {

// y = [x, t] W^T with t = x A^T: the adapter's low-rank update in `lora` extra
// columns of W, which hold scale * B; base and update are added in float32 and
// rounded once. lora 0: the base, or an adapter that is merged into W. Widths
// are multiples of 8.
struct CudaLinear {
  const void* weight = nullptr;  // [out, in + lora]
  const void* lora_a = nullptr;  // [lora, in]
  const void* bias = nullptr;    // [out] or null
  int64_t in = 0;
  int64_t out = 0;
  int64_t lora = 0;
};

struct CudaDecoderLayer {
  const void* input_norm = nullptr;           // [hidden]
  const void* post_attention_norm = nullptr;  // [hidden]
  const void* q_norm = nullptr;               // [head_dim] or null
  const void* k_norm = nullptr;               // [head_dim] or null
  CudaLinear qkv;                             // q, k and v stacked
  CudaLinear o;
  CudaLinear gate_up;  // gate and up stacked
  CudaLinear down;
};

// heads, kv_heads, intermediate and the layers are this rank's, the rest is the
// whole model's.
struct CudaDecoderSpec {
  CudaNumber number = CudaNumber::kFloat32;
  NcclRanks ranks;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;
  int64_t num_tokens = 0;  // ids from here on are never sampled
  float eps = 0.0F;
  int64_t num_layers = 0;
  const CudaDecoderLayer* layers = nullptr;  // host memory, copied
  const void* embedding = nullptr;           // [vocab, hidden]
  const void* final_norm = nullptr;          // [hidden]
  const void* head = nullptr;                // [vocab, hidden]
  const void* cosine = nullptr;              // [max_tokens, head_dim] (rope.h)
  const void* sine = nullptr;                // [max_tokens, head_dim]
  int64_t slots = 0;
  int64_t max_tokens = 0;  // of the longest sequence, prompt and answer
  // Rows of the largest graph, a power of two. A step takes the smallest one
  // that holds the running sequences; if `stable_bits`, of those in which their
  // bits do not depend on how many run (LeastStableRows).
  int64_t max_rows = 0;
  bool stable_bits = true;
  const int32_t* end_tokens = nullptr;  // device memory
  int64_t num_end_tokens = 0;
};

// Whether each rank computes an equal part of a vocabulary's logits, which then
// begins at a multiple of 16 bytes; else each computes all of them.
constexpr bool SplitsHead(int64_t vocab, const NcclRanks& ranks) {
  return ranks.size > 1 && vocab % (4 * ranks.size) == 0;
}

// Pages of a slot: its pages number `first`, `first` + 1, ... lie at the
// addresses `pages` (CudaKvPages), which are host memory.
struct CudaSlotPages {
  int64_t first = 0;
  void* const* pages = nullptr;
  int64_t num_pages = 0;
};

// A sequence whose prompt was computed. The last slot is for scoring: while a
// sequence runs there, the others wait. Structs and arrays are host memory.
struct CudaPrompt {
  int64_t slot = 0;
  CudaSequence sequence;
  int64_t num_tokens = 0;  // whose keys and values are in the pages
  CudaSlotPages pages;     // from the first on
};

struct CudaDecodedToken {
  int32_t slot = 0;
  CudaSampled sampled;
};

extern "C" {
// Bytes of device memory that a decoder works in.
int64_t DapdCudaDecoderWorkspace(const CudaDecoderSpec* spec);

// `workspace` and everything the spec points to must outlive the decoder. What
// weights and caches hold may change between steps, where they lie may not.
// After an error, too, there is a `decoder` to be destroyed, and nothing else:
// of several ranks once what they do together has ended, for its first step may
// wait for one that is gone.
int DapdCudaDecoderCreate(const CudaDecoderSpec* spec,
                          void* workspace,
                          void** decoder,
                          char* error);
void DapdCudaDecoderDestroy(void* decoder);
// Before DapdNcclAbort, which waits until no graph has operations of the
// communicator in it: gives the graphs up without waiting for what is under
// way. Then nothing is left but to destroy the decoder.
void DapdCudaDecoderDropGraphs(void* decoder);

// Samples the first token of each sequence from its prompt's logits, row i of
// [num_prompts, vocab] in device memory, and lets them run. At most max_rows.
// Waits for what was launched, once. After an error none of them runs: they may
// be started again.
int DapdCudaDecoderStart(void* decoder,
                         const CudaPrompt* prompts,
                         int64_t num_prompts,
                         const float* logits,
                         char* error);
// More pages for a slot, behind those it has. Does not wait.
int DapdCudaDecoderExtend(void* decoder,
                          int64_t slot,
                          const CudaSlotPages* pages,
                          char* error);
// Takes a slot out; one that does not run stays so. Waits likewise.
int DapdCudaDecoderStop(void* decoder, int64_t slot, char* error);

// Launches `steps` (up to kMaxBurst) steps of all running sequences and
// returns. At most kMaxBursts may be launched and not collected. An error if a
// sequence could outgrow its pages in them, or if no memory is there for a
// graph of these sequences' number and length and no larger graph is there:
// then nothing was launched, and the call may be repeated when there is some.
// Where the device takes no more after some of the steps, those are a launch as
// any other, and it is an error.
int DapdCudaDecoderLaunch(void* decoder, int64_t steps, char* error);
// Waits for the oldest launch and gives its tokens, those of a slot in order,
// and what Start sampled meanwhile: up to slots * kSampledRing. Launched
// nothing: gives only the latter.
int DapdCudaDecoderCollect(void* decoder,
                           CudaDecodedToken* tokens,
                           int64_t* num_tokens,
                           char* error);
// Launches that were not collected.
int64_t DapdCudaDecoderLaunched(const void* decoder);
// Sequences that run as far as is known from what was collected.
int64_t DapdCudaDecoderRunning(const void* decoder);
}

// A function's result where the ranks are lost to each other: after
// DapdNcclAbort the decoder can be destroyed, and nothing else.
inline constexpr int kCudaRanksLost = 2;
inline constexpr int64_t kMaxBursts = 2;
inline constexpr int64_t kMaxBurst = kSampledRing / 4;

}  // namespace dapd
