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
#include <vector>

#include "common/generation/cuda/cuda_decoder.h"
#include "common/generation/cuda/cuda_library.h"
#include "common/generation/cuda/cuda_packed_weights.h"
#include "common/generation/decode_backend.h"
#include "common/model/weights/weights.h"
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

class CudaDecodeBackend : public DecodeBackend {
 public:
  // A projection of `weights` is given back when it is packed, if nobody else
  // holds it (cuda_packed_weights.h).
  CudaDecodeBackend(ModelWeights weights,
                    const CudaDecodeOptions& options,
                    const CudaLibrary& library);
  ~CudaDecodeBackend() override;

  const ModelConfig& config() const override { return weights_.config; }
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
  // (Re)makes packed weights and decoder for the adapter's layout.
  void Prepare();
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
