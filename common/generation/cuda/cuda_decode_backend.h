// The decode backend of NVIDIA GPUs: prompts several at a time
// (cuda_prefill.h), everything after them in one CUDA graph per step
// (cuda_decoder.h), sampling included. The host stays a few steps behind and
// never waits for a single token.
//
//   Start    takes pages of KV memory for the prompt
//   Reserve  takes further pages as the answer grows
//   Step     prefills waiting prompts up to a budget of tokens, keeps two
//            batches of steps launched and gives the tokens of the older one
//   Stop     gives the pages back
//
// Bits: all steps have the same number of rows, splits of attention lie at
// fixed positions and products over prompts have a fixed number of rows, so a
// sequence's tokens do not depend on its neighbours. One that is resumed is
// decoded anew: a prefill of its answer would sum in another order.
//
// Ranks: where several share the model (rollout.tensor_parallel), each has such
// a backend over its heads and its columns of the MLP, and all are asked for
// the same in the same order (backend_relay.h). What they sum up is in the
// graph (cuda_decoder.h), of prompts between its launches; the host takes part
// in none of it, and waits as often as one process does. What fails on one rank
// after the others have begun is the end of all: ABORTED, as StatusError.
//
// Memory: KV pages of 128 tokens are taken as sequences need them. The default
// budget is half of what is free on the GPU when the backend is made; the rest
// is for prompts and for other processes. A prompt that finds no memory while
// others run waits for them; only one that finds none alone is an error.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/collective/device_group.h"
#include "common/generation/cuda/cuda_decoder.h"
#include "common/generation/cuda/cuda_library.h"
#include "common/generation/cuda/cuda_packed_weights.h"
#include "common/generation/decode_backend.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct CudaDecodeOptions {
  int64_t slots = 32;
  int64_t num_tokens = 0;  // ids the tokenizer knows; 0: the whole vocabulary
  // Not set: as cuda_packed_weights.h says for the weights' precision.
  std::optional<AdapterForm> adapter_form;
  // False: a step has as many rows as sequences run, rounded up to a power of
  // two. Faster when most have ended, but their bits depend on each other.
  bool stable_bits = true;
};

// Null, with the reason in the log, if this build or the model's shape is not
// supported, or if adapters are merged and the GPU has no room for weights
// beside the base. LibTorch's own operations then decode (aten_backend.h). Else
// lets go of `weights`: with columns for adapters they are in memory once.
std::unique_ptr<DecodeBackend> MakeCudaDecodeBackend(
    std::shared_ptr<const ModelWeights>& weights,
    const CudaDecodeOptions& options);

// The same for this rank's share, which it lets go of; `devices` are those of
// all ranks. Null, if the build or the shape is not supported, on every rank.
std::unique_ptr<DecodeBackend> MakeSharedCudaDecodeBackend(
    std::shared_ptr<const ShardedWeights>& share,
    const std::shared_ptr<DeviceGroup>& devices,
    const CudaDecodeOptions& options);

// A rank's place among those that share a model.
struct CudaDecodeRanks {
  ModelConfig model;  // the whole one
  ShardLayout layout;
  std::shared_ptr<DeviceGroup> devices;  // null: the model is not shared
};

// A rank's share as the weights of a model of its own. Unlike WeightsOfRank's,
// its biases of O and down are whole on every rank: the kernels add them behind
// the sum.
ModelWeights CudaWeightsOfRank(const ShardedWeights& share);

class CudaDecodeBackend : public DecodeBackend {
 public:
  // A projection of `weights` is given back when it is packed, if nobody else
  // holds it (cuda_packed_weights.h). With `ranks` they are
  // CudaWeightsOfRank's, and all ranks construct theirs at the same time.
  CudaDecodeBackend(ModelWeights weights,
                    const CudaDecodeOptions& options,
                    const CudaLibrary& library,
                    CudaDecodeRanks ranks = {});
  ~CudaDecodeBackend() override;

  const ModelConfig& config() const override {
    return ranks_.devices == nullptr ? weights_.config : ranks_.model;
  }
  int64_t num_slots() const override { return options_.slots; }
  int64_t KvBytes(int64_t tokens) const override;
  int64_t StepPositions() const override;
  int64_t DefaultKvBudget() const override { return kv_budget_; }
  void SetAdapter(std::shared_ptr<const Adapter> adapter) override;
  bool Start(int64_t slot, DecodeRequest request) override;
  bool Reserve(int64_t slot, int64_t tokens) override;
  void Stop(int64_t slot) override;
  std::vector<DecodedToken> Step() override;
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override;

 private:
  struct Sequence {
    DecodeRequest request;
    // [pages, layers, 2, kv_heads, kSplitTokens, head_dim] each; the first has
    // the prompt's.
    std::vector<at::Tensor> pages;
    bool prefilled = false;

    int64_t num_pages() const;
  };
  // Throws for what a function of the library has answered.
  void Check(int code, const char* error) const;
  // Ends what the ranks do together.
  [[noreturn]] void LoseRanks(const std::string& why) const;
  // Calls what every rank calls now: it must not fail on one of them alone.
  template <typename Call>
  auto OnEveryRank(const Call& call) const;
  // Over the ranks, as SumOfParts has it: each of them adds up a piece of the
  // parts, in the order of the ranks, and gives it to the others.
  at::Tensor AddUpOverRanks(const at::Tensor& part) const;
  // (Re)makes packed weights and decoder for the adapter's layout.
  void Prepare();
  // Lets everything that follows compute with adapter_.
  void UseAdapter();
  // Makes the decoder that a Prepare had no memory for.
  void EnsureDecoder();
  // How an adapter is merged into a projection where CudaPackedWeights asks for
  // that. Not to outlive this.
  MergePair MergeOnDevice() const;
  // Pointers into `packed` and the weights.
  std::vector<CudaDecoderLayer> LayersOf(const CudaPackedWeights& packed) const;
  at::Tensor TakeBytes(int64_t bytes) const;
  at::Tensor TakePages(int64_t tokens) const;
  // A sequence whose prompt is to be computed.
  struct Waiting {
    int64_t slot = 0;
    Sequence* sequence = nullptr;
    const int32_t* forced = nullptr;  // as CudaSequence
  };
  // Computes the prompts into their pages, in one pass, and lets them run.
  void Prefill(std::span<const Waiting> prompts);
  void PrefillWaiting();
  // The oldest launch's tokens; those of the scoring slot into `scored`.
  std::vector<DecodedToken> Collect(std::vector<float>* scored);

  ModelWeights weights_;
  CudaDecodeOptions options_;
  const CudaLibrary library_;
  const CudaDecodeRanks ranks_;
  const int64_t max_tokens_;
  int64_t kv_budget_ = 0;
  std::shared_ptr<const Adapter> adapter_;
  std::unique_ptr<CudaPackedWeights> packed_;
  at::Tensor cosine_;
  at::Tensor sine_;
  at::Tensor end_tokens_;
  at::Tensor workspace_;
  void* decoder_ = nullptr;
  std::vector<std::unique_ptr<Sequence>> slots_;  // null: free
  std::deque<int64_t> waiting_;                   // taken, not prefilled
  std::vector<DecodedToken> pending_;  // came while others were scored
};

}  // namespace dapd
