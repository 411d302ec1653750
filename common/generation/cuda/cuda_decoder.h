// A decoder that computes one token of every running sequence as one CUDA
// graph: embedding, layers, head, sampling and the step to the next position.
// The host launches steps and reads their tokens later; it waits for no single
// token.
//
// The interface is plain C over device pointers, as libdapd_cuda.so offers it
// (CudaSymbol). CudaDecodeModel (cuda_decode_model.h) makes the decoder and
// CudaDecodeBackend (cuda_decode_backend.h) decodes with it; they own all
// memory. A decoder has its own CUDA stream, which is ordered with LibTorch's
// default stream. Functions that return int return 0, or another number with
// the reason in `error` (kCudaErrorBytes). Not thread-safe.
//
// Ranks may share a model: each has a decoder over its heads and its columns of
// the MLP, and all call the same functions in the same order. Their parts of a
// layer's two outputs are gathered in float32, by NCCL inside of the graph, and
// every rank adds them up in the order of the ranks. An all-reduce would not
// do: its order of summation depends on where in the buffer a row stands, so a
// sequence's bits would depend on its neighbours. If SplitsHead holds, each
// rank computes its part of the vocabulary's logits and gathers the parts of
// the others. Every rank samples for itself, from the same numbers.
//
// A rank that finds no memory for a graph leaves the others waiting for
// nothing: all ranks run the bucket's first step, capture its graph for
// themselves, and then ask each other (RanksAgree). If one has failed, none
// keeps the graph.
#pragma once

#include <cstdint>

#include "common/collective/nccl_api.h"
#include "common/kernels/cuda/launch.h"
#include "common/kernels/cuda/sampling.h"

namespace dapd {

// y = [x, t] W^T with t = x A^T. The adapter's low-rank update is in `lora`
// extra columns of W, which hold scale * B; base and update are added in
// float32 and rounded once. With lora 0 it is the base, or an adapter that is
// merged into W. Widths are multiples of 8.
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

// Ranks ask each other over the host whether something holds on all of them.
// All make the same calls in the same order.
struct RanksAgree {
  enum Answer : int { kNo = 0, kYes = 1, kLost = 2 };
  Answer (*ask)(void* asked, bool holds) = nullptr;  // null: there is one rank
  void* asked = nullptr;
};

// heads, kv_heads, intermediate and the layers belong to this rank, everything
// else to the whole model.
struct CudaDecoderSpec {
  CudaNumber number = CudaNumber::kFloat32;
  bool kv_float8 = false;  // as CudaKvPages::is_float8
  NcclRanks ranks;
  RanksAgree agree;
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
  // Rows of the largest graph, a power of two. A step takes the smallest graph
  // that holds the running sequences. With `stable_bits` it takes only graphs
  // in which a sequence's bits do not depend on how many run (LeastStableRows).
  int64_t max_rows = 0;
  bool stable_bits = true;
  // If true, devices that have it compute products in the form of
  // bulk_product.h, which waits for its first measurement.
  bool bulk_products = false;
  const int32_t* end_tokens = nullptr;  // device memory
  int64_t num_end_tokens = 0;
};

// Returns whether each rank computes an equal part of a vocabulary's logits.
// The parts then begin at multiples of 16 bytes. Otherwise each rank computes
// all logits.
constexpr bool SplitsHead(int64_t vocab, const NcclRanks& ranks) {
  return ranks.size > 1 && vocab % (4 * ranks.size) == 0;
}

// Pages of a slot: its pages number `first`, `first` + 1, ... lie at the
// addresses `pages` (CudaKvPages). The array is in host memory.
struct CudaSlotPages {
  int64_t first = 0;
  void* const* pages = nullptr;
  int64_t num_pages = 0;
};

// A sequence whose prompt was computed. The last slot is for scoring: while a
// sequence runs there, the others wait. Structs and arrays are in host memory.
struct CudaPrompt {
  int64_t slot = 0;
  CudaSequence sequence;
  int64_t num_tokens = 0;  // tokens whose keys and values are in the pages
  CudaSlotPages pages;     // from the first page on
};

// A sequence that leaves its slot to continue later, in any slot, from pages
// with the same contents.
struct CudaPaused {
  int32_t num_sampled = 0;
  int32_t last_token = 0;  // its keys and values are not in the pages yet
  bool has_ended = false;  // it does not continue
};

// A paused sequence that continues. Structs and arrays are in host memory.
struct CudaContinued {
  int64_t slot = 0;
  CudaSequence sequence;   // as in CudaPrompt; `num_sampled` is CudaPaused's
  int64_t num_tokens = 0;  // of the prompt
  int32_t last_token = 0;
  CudaSlotPages pages;  // from the first page on
};

struct CudaDecodedToken {
  int32_t slot = 0;
  CudaSampled sampled;
};

extern "C" {
// Returns the bytes of device memory that a decoder works in.
int64_t DapdCudaDecoderWorkspace(const CudaDecoderSpec* spec);

// `workspace` and everything that the spec points to must outlive the decoder.
// The contents of weights and caches may change between steps, their addresses
// may not. After an error, too, there is a `decoder`, which must be destroyed
// and not used otherwise. If there are several ranks, it may be destroyed only
// after their common operations have ended, because its first step may wait for
// a rank that is gone.
int DapdCudaDecoderCreate(const CudaDecoderSpec* spec,
                          void* workspace,
                          void** decoder,
                          char* error);
void DapdCudaDecoderDestroy(void* decoder);
// Destroys the graphs without waiting for running work. It must be called
// before DapdNcclAbort, which waits until no graph contains operations of the
// communicator. Afterwards the decoder can only be destroyed.
void DapdCudaDecoderDropGraphs(void* decoder);

// Samples the first token of each sequence from its prompt's logits, row i of
// [num_prompts, vocab] in device memory, and starts the sequences. At most
// max_rows prompts. Waits for all launched work, once. After an error none of
// them runs, and they may be started again.
int DapdCudaDecoderStart(void* decoder,
                         const CudaPrompt* prompts,
                         int64_t num_prompts,
                         const float* logits,
                         char* error);
// Adds pages to a slot, after the pages that it has. Does not wait.
int DapdCudaDecoderExtend(void* decoder,
                          int64_t slot,
                          const CudaSlotPages* pages,
                          char* error);
// Stops the sequence of a slot; a slot without a sequence stays so. Waits for
// all launched work.
int DapdCudaDecoderStop(void* decoder, int64_t slot, char* error);

// Stops the sequence of a slot, as DapdCudaDecoderStop does, and says how it
// continues. `tokens` gets its tokens that no Collect has returned, in order,
// up to kSampledRing.
int DapdCudaDecoderPause(void* decoder,
                         int64_t slot,
                         CudaPaused* paused,
                         CudaDecodedToken* tokens,
                         int64_t* num_tokens,
                         char* error);
// Continues a sequence in a free slot: its next token has the bits that it
// would have had without the pause. Waits for all launched work.
int DapdCudaDecoderContinue(void* decoder,
                            const CudaContinued* sequence,
                            char* error);
// Copies pages of `page_bytes` between the device and page-locked memory of the
// host, from[i] to to[i], on a stream of its own. The copies begin after all
// launched work, and everything that is launched or copied later begins after
// them. The host does not wait: it may free the device's pages, or take host
// pages for other copies, at once. The arrays are in host memory.
int DapdCudaDecoderCopyPages(void* decoder,
                             void* const* to,
                             void* const* from,
                             int64_t num_pages,
                             int64_t page_bytes,
                             char* error);
// Takes page-locked memory of the host, and frees it. All copies of the memory
// must have ended: the decoder waits for them when it is destroyed.
int DapdCudaTakeHostMemory(int64_t bytes, void** memory, char* error);
void DapdCudaFreeHostMemory(void* memory);

// Launches `steps` (up to kMaxBurst) steps of all running sequences and
// returns. At most kMaxBursts launches may be uncollected. Fails, with nothing
// launched, if a sequence could outgrow its pages, or if there is no memory for
// a graph of these sequences' number and length and no larger graph exists; in
// the second case, with kCudaRanksRefuse on all of several ranks, the call may
// be repeated when there is memory. If the device fails after some of the
// steps, these steps are a launch like any other, and the call still returns
// the error.
int DapdCudaDecoderLaunch(void* decoder, int64_t steps, char* error);
// Waits for the oldest launch and returns its tokens, in order within each
// slot, and the tokens that Start sampled meanwhile: up to slots *
// kSampledRing. Without a launch it returns only the tokens of Start.
int DapdCudaDecoderCollect(void* decoder,
                           CudaDecodedToken* tokens,
                           int64_t* num_tokens,
                           char* error);
// Returns how many launches were not collected.
int64_t DapdCudaDecoderLaunched(const void* decoder);
// Returns how many sequences run, according to the collected launches.
int64_t DapdCudaDecoderRunning(const void* decoder);
}

// A function's result when the ranks have lost each other: after DapdNcclAbort
// the decoder can only be destroyed.
inline constexpr int kCudaRanksLost = 2;
// A function's result on every rank if one of them has failed, as a rule for
// want of memory, and the others have undone their part. `error` has the reason
// on the rank that has failed, and "out of memory" on the others.
inline constexpr int kCudaRanksRefuse = 3;
inline constexpr int64_t kMaxBursts = 2;
inline constexpr int64_t kMaxBurst = kSampledRing / 4;

}  // namespace dapd
