// The model that the CUDA backend decodes with: its weights as the kernels read
// them (packed_weights.h), the adapter in them, and the decoder
// (cuda_decoder.h) that is made for both. Who decodes with it, and where
// sequences have their keys and values, is cuda_decode_backend.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/generation/cuda/cuda_decode_api.h"
#include "common/generation/cuda/cuda_decoder.h"
#include "common/generation/cuda/cuda_prefill.h"
#include "common/generation/cuda/cuda_ranks.h"
#include "common/model/fast/packed_weights.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct CudaDecodeOptions {
  int64_t slots = 32;
  int64_t num_tokens = 0;  // ids the tokenizer knows; 0: the whole vocabulary
  // Not set: as packed_weights.h says for the weights' precision.
  std::optional<AdapterForm> adapter_form;
  // False: a step has as many rows as sequences run, rounded up to a power of
  // two. Faster when most have ended, but where products are cuBLASLt's
  // (skinny_product.h) their bits depend on each other.
  bool stable_bits = true;
};

class CudaDecodeModel {
 public:
  // Makes the decoder for the base. A projection of `weights` is given back
  // when it is packed, if nobody else holds it (packed_weights.h). Where
  // ranks share the model they are CudaWeightsOfRank's, and all ranks construct
  // theirs at the same time. Throws as CudaRanks::Check, for want of memory
  // c10::OutOfMemoryError.
  CudaDecodeModel(ModelWeights weights,
                  const CudaDecodeOptions& options,
                  const CudaDecodeApi& api,
                  CudaDecodeRanks ranks);
  ~CudaDecodeModel();
  CudaDecodeModel(const CudaDecodeModel&) = delete;
  CudaDecodeModel& operator=(const CudaDecodeModel&) = delete;

  // Of the whole model, and of this rank's share of it.
  const ModelConfig& config() const {
    return ranks_.share_a_model() ? ranks_.place().model : weights_.config;
  }
  const ModelConfig& own_config() const { return weights_.config; }
  at::TensorOptions tensor_options() const {
    return weights_.embedding.options();
  }
  // Sequences that run at a time; the decoder has a slot more, which scores.
  int64_t slots() const { return options_.slots; }
  // Of the longest sequence, prompt and answer.
  int64_t max_tokens() const { return max_tokens_; }
  const CudaDecodeApi& api() const { return api_; }
  const CudaRanks& ranks() const { return ranks_; }

  // Lets everything that follows compute with the whole model's adapter, null
  // for the base. Where that throws for want of memory there is no decoder, and
  // EnsureDecoder makes it.
  void SetAdapter(std::shared_ptr<const Adapter> adapter);
  void EnsureDecoder();
  // Of `api`'s functions.
  void* decoder() const { return decoder_; }

  // The prompts through these weights, as PrefillPrompts.
  at::Tensor Prefill(std::span<const PrefillPrompt> prompts) const;

 private:
  // (Re)makes packed weights and decoder for the adapter's layout.
  void Prepare();
  void UseAdapter();
  // How an adapter is merged into a projection where PackedWeights asks for
  // that. Not to outlive this.
  MergePair MergeOnDevice() const;
  // Pointers into the packed weights and the others.
  std::vector<CudaDecoderLayer> Layers() const;
  at::Tensor TakeBytes(int64_t bytes) const;

  ModelWeights weights_;
  CudaDecodeOptions options_;
  const CudaDecodeApi api_;
  const CudaRanks ranks_;
  const int64_t max_tokens_;
  std::shared_ptr<const Adapter> adapter_;
  std::unique_ptr<PackedWeights> packed_;
  at::Tensor cosine_;
  at::Tensor sine_;
  at::Tensor end_tokens_;
  at::Tensor workspace_;
  void* decoder_ = nullptr;
  bool is_applied_ = false;  // adapter_, to packed_
};

}  // namespace dapd
