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
//   SwapOut  copies the pages to page-locked memory of the host, and gives them
//            back; SwapIn takes pages and copies the contents into them
//
// Bits: all steps have the same number of rows, splits of attention lie at
// fixed positions and products over prompts have a fixed number of rows, so a
// sequence's tokens do not depend on its neighbours. Pages are copied as bytes,
// so a swapped sequence continues from the same numbers. A resumed sequence is
// decoded again from its prompt: a prefill of its answer would sum in another
// order.
//
// Ranks: if several ranks share the model (rollout.tensor_parallel), each has
// such a backend over its heads and its columns of the MLP, and all make the
// same calls in the same order (backend_relay.h). Their sums are in the graph
// (cuda_decoder.h), for prompts between the launches; the host takes no part in
// them and waits as often as a single process does. If a rank finds no memory
// for prompts, for an adapter or for a graph, all ranks drop them and, unless
// they have a larger graph, throw WantOnARank: the answers begin again later,
// as they do in one process. Any other failure of one rank ends all: ABORTED,
// as StatusError.
//
// Memory: KV pages of 128 tokens are taken as sequences need them. The default
// budget is half of the memory that is free on the GPU when the backend is
// made; a worker that is alone on its GPU gives more (answer_memory.h). The
// rest is for prompts and other processes. A prompt that finds no memory while
// other sequences run waits for them; it is an error only if it finds none
// alone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/generation/cuda/cuda_decode_api.h"
#include "common/generation/cuda/cuda_decode_model.h"
#include "common/generation/cuda/cuda_host_pages.h"
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
  int64_t DefaultSwapBudget() const override {
    return host_pages_->limit_bytes();
  }
  int64_t SwapOut(int64_t slot, uint64_t key) override;
  bool SwapIn(int64_t slot, uint64_t key, int64_t tokens) override;
  void DropSwapped(uint64_t key) override;
  std::vector<DecodedToken> Step() override;
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override;

 private:
  struct Sequence {
    DecodeRequest request;
    // As PrefillPrompt::pages each. The first tensor has the prompt's pages.
    std::vector<at::Tensor> pages;
    bool prefilled = false;

    int64_t num_pages() const;
  };
  // A sequence on the host.
  struct Swapped {
    DecodeRequest request;
    CudaPaused paused;
    std::vector<DecodedToken> tokens;  // not yet returned
    std::vector<void*> pages;
  };
  // Calls a function of the library with the decoder and throws if it fails
  // (CudaRanks::Check).
  template <typename Function, typename... Args>
  void Call(Function CudaDecodeApi::*function, Args... args) const;
  // Returns DapdCudaDecoderRunning.
  int64_t num_running() const;
  int64_t page_bytes() const { return KvBytes(1); }
  // Returns the bytes of the keys, or values, of a KV head in a page.
  int64_t PartBytes() const;
  at::Tensor TakePages(int64_t tokens) const;
  // Copies pages between the device and the host.
  void CopyPages(const std::vector<void*>& to,
                 const std::vector<void*>& from) const;
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
  // Drops the tokens of a slot that Step has not returned.
  void DropPending(int64_t slot);
  // Returns a token of the decoder. Throws if its logits were not finite.
  DecodedToken Finite(const CudaDecodedToken& token) const;
  // Returns the tokens of the oldest launch; tokens of the scoring slot go to
  // `scored`.
  std::vector<DecodedToken> Collect(std::vector<float>* scored);

  int64_t kv_budget_ = 0;
  std::vector<std::unique_ptr<Sequence>> slots_;  // null: free
  std::deque<int64_t> waiting_;                   // taken slots without a
                                                  // prefill
  // Arrived while ScoreTokens ran, or with a sequence that came back, or scored
  // in a prompt.
  std::vector<DecodedToken> pending_;
  std::map<uint64_t, Swapped> swapped_;  // by key
  // The model is destroyed before the pages, because running steps and copies
  // use them.
  std::unique_ptr<CudaHostPages> host_pages_;
  CudaDecodeModel model_;
};

}  // namespace dapd
