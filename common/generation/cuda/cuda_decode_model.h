// The model that the CUDA backend decodes with: its weights in the layout of
// the kernels (packed_weights.h), with the adapter in them, and the decoder
// (cuda_decoder.h) for both. cuda_decode_backend.h uses it and holds the
// sequences' keys and values.
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
  int64_t num_tokens = 0;  // ids that the tokenizer knows; 0: all
  bool kv_float8 = false;  // keys and values in 8 bits (float8.h)
  // If not set, packed_weights.h chooses it by the weights' precision.
  std::optional<AdapterForm> adapter_form;
  // If false, a step has as many rows as sequences run, rounded up to a power
  // of two. That is faster when most sequences have ended, but where cuBLASLt
  // computes products (skinny_product.h) their bits then depend on each other.
  bool stable_bits = true;
  bool bulk_products = false;  // CudaDecoderSpec
};

class CudaDecodeModel {
 public:
  // Makes the decoder for the base. Each projection of `weights` is freed when
  // it is packed, if nobody else holds it (packed_weights.h). If ranks share
  // the model, `weights` are from CudaWeightsOfRank, and all ranks construct
  // theirs at the same time. Throws the errors of CudaRanks::Check, and
  // c10::OutOfMemoryError for lack of memory.
  CudaDecodeModel(ModelWeights weights,
                  const CudaDecodeOptions& options,
                  const CudaDecodeApi& api,
                  CudaDecodeRanks ranks);
  ~CudaDecodeModel();
  CudaDecodeModel(const CudaDecodeModel&) = delete;
  CudaDecodeModel& operator=(const CudaDecodeModel&) = delete;

  // Return the configuration of the whole model, and of this rank's share.
  const ModelConfig& config() const {
    return ranks_.share_a_model() ? ranks_.place().model : weights_.config;
  }
  const ModelConfig& own_config() const { return weights_.config; }
  at::TensorOptions tensor_options() const {
    return weights_.embedding.options();
  }
  // Returns how many sequences run at a time. The decoder has one more slot,
  // for scoring.
  int64_t slots() const { return options_.slots; }
  bool kv_float8() const { return options_.kv_float8; }
  // Returns the length of the longest sequence, prompt and answer.
  int64_t max_tokens() const { return max_tokens_; }
  const CudaDecodeApi& api() const { return api_; }
  const CudaRanks& ranks() const { return ranks_; }

  // From now on everything is computed with this adapter of the whole model,
  // null for the base. If it throws for lack of memory there is no decoder, and
  // EnsureDecoder makes it.
  void SetAdapter(std::shared_ptr<const Adapter> adapter);
  void EnsureDecoder();
  // Returns the decoder that the functions of `api` take.
  void* decoder() const { return decoder_; }

  // Takes memory for the sums over the ranks in a pass over prompts of so many
  // tokens; null if the model is not shared.
  std::unique_ptr<CudaRankSums> MakeSums(int64_t tokens) const;
  // Computes prompts with these weights, as PrefillPrompts does. `sums` is from
  // MakeSums for their tokens.
  at::Tensor Prefill(std::span<const PrefillPrompt> prompts,
                     CudaRankSums* sums) const;

 private:
  // Makes packed weights and decoder for the adapter's layout, also again.
  void Prepare();
  void MakePackedWeights();
  void MakeDecoder();
  void CreateDecoder(const CudaDecoderSpec& spec);
  void DropDecoder();
  void UseAdapter();
  // Returns how to merge an adapter into a projection, for a PackedWeights that
  // merges. The result must not outlive this object.
  MergePair MergeOnDevice() const;
  // Returns pointers into the packed weights and the other weights.
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
  bool is_applied_ = false;  // packed_ contains adapter_
};

}  // namespace dapd
