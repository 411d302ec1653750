// The decode backend of NVIDIA GPUs. Prompts are computed several at a time
// (cuda_prefill.h); everything after them, sampling included, is one CUDA graph
// per step (cuda_decoder.h). The host stays a few steps behind and never waits
// for a single token.
//
//   Start    takes pages of KV memory for the prompt
//   Reserve  takes further pages as the answer grows
//   Step     prefills waiting prompts up to a budget of tokens, keeps two
//            batches of steps launched and returns the tokens of the older
//            batch
//   Stop     gives the pages back
//
// Bits: all steps have the same number of rows, splits of attention lie at
// fixed positions and products over prompts have a fixed number of rows, so a
// sequence's tokens do not depend on its neighbours. A resumed sequence is
// decoded again from its prompt: a prefill of its answer would sum in another
// order.
//
// Ranks: if several ranks share the model (rollout.tensor_parallel), each has
// such a backend over its heads and its columns of the MLP, and all make the
// same calls in the same order (backend_relay.h). Their sums are in the graph
// (cuda_decoder.h), for prompts between the launches; the host takes no part in
// them and waits as often as a single process does. If a rank finds no memory
// for prompts or for an adapter, all ranks drop them and throw WantOnARank: the
// answers begin again later, as they do in one process. Any other failure of
// one rank, also a graph of running sequences that finds no memory, ends all:
// ABORTED, as StatusError.
//
// Memory: KV pages of 128 tokens are taken as sequences need them. The default
// budget is half of the memory that is free on the GPU when the backend is
// made; the rest is for prompts and other processes. A prompt that finds no
// memory while other sequences run waits for them; it is an error only if it
// finds none alone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "common/generation/cuda/cuda_decode_api.h"
#include "common/generation/cuda/cuda_decode_model.h"
#include "common/generation/cuda/cuda_ranks.h"
#include "common/generation/decode_backend.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

class CudaDecodeBackend : public DecodeBackend {
 public:
  // Takes the arguments of CudaDecodeModel.
  CudaDecodeBackend(ModelWeights weights,
                    const CudaDecodeOptions& options,
                    const CudaDecodeApi& api,
                    CudaDecodeRanks ranks = {});

  const ModelConfig& config() const override { return model_.config(); }
  int64_t num_slots() const override { return model_.slots(); }
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
    // [pages, layers, 2, kv_heads, kSplitTokens, head_dim] each. The first
    // tensor has the prompt's pages.
    std::vector<at::Tensor> pages;
    bool prefilled = false;

    int64_t num_pages() const;
  };
  // Calls a function of the library with the decoder and throws if it fails
  // (CudaRanks::Check).
  template <typename Function, typename... Args>
  void Call(Function CudaDecodeApi::*function, Args... args) const;
  // Returns DapdCudaDecoderRunning.
  int64_t num_running() const;
  at::Tensor TakePages(int64_t tokens) const;
  // A sequence whose prompt is not computed yet.
  struct Waiting {
    int64_t slot = 0;
    Sequence* sequence = nullptr;
    const int32_t* forced = nullptr;  // CudaSequence::forced
  };
  // Computes the prompts into their pages, in one pass, and starts them. If it
  // throws for lack of memory, it has started none.
  void Prefill(std::span<const Waiting> prompts);
  // The part of one rank; `sums` is null if there are no others.
  void PrefillOnRank(std::span<const Waiting> prompts, CudaRankSums* sums);
  void PrefillWaiting();
  // Returns the tokens of the oldest launch; tokens of the scoring slot go to
  // `scored`.
  std::vector<DecodedToken> Collect(std::vector<float>* scored);

  int64_t kv_budget_ = 0;
  std::vector<std::unique_ptr<Sequence>> slots_;  // null: free
  std::deque<int64_t> waiting_;                   // taken slots without a
                                                  // prefill
  std::vector<DecodedToken> pending_;  // arrived while ScoreTokens ran
  // It is destroyed first, because running steps read the sequences' pages.
  CudaDecodeModel model_;
};

}  // namespace dapd
