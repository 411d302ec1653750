// The decoder over packed sequences with the adapter's gradient: by hand where
// LayerPass computes the model (fast/fast_training_pass.h), else by LibTorch's
// operations under autograd, layer by layer (reference/autograd_pass.h). The
// reference implementation of both is ForwardHidden (decoder.h) under autograd.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/model/fast/sequence_tails.h"
#include "common/model/reference/decoder.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

inline constexpr int64_t kUnlimitedActivations =
    std::numeric_limits<int64_t>::max();

class TrainingPass {
 public:
  virtual ~TrainingPass() = default;

  // Returns the final-norm hidden states [R, hidden].
  virtual const at::Tensor& hidden() const = 0;
  // Returns the number of layers whose activations are kept.
  virtual int64_t num_kept_layers() const = 0;

  // Returns the gradient of a loss with respect to the adapter, by layer, in
  // new tensors where the adapter has tensors. `grad_hidden` is the loss's
  // gradient with respect to hidden(). Call this once, because it frees the
  // activations.
  virtual std::vector<LoraLayer> Backward(const at::Tensor& grad_hidden) = 0;
};

// Runs the forward pass. `rows` [R] int64 as in ForwardHidden.
// `activation_bytes`: limit of all kept activations; 0 keeps only each layer's
// input, and so does LibTorch with any limit. `prefixes`, none or one per
// sequence: chunks that were computed before; LayerPass does not compute them
// again. `weights` and `adapter` must outlive the pass, and the adapter must
// not change before Backward.
std::unique_ptr<TrainingPass> MakeTrainingPass(
    const ModelWeights& weights,
    const Adapter& adapter,
    const PackedTokens& tokens,
    const at::Tensor& rows,
    int64_t activation_bytes,
    const std::vector<SequencePrefix>& prefixes = {});

// Returns the number of layers whose activations a pass of `tokens` tokens
// keeps in `bytes`.
int64_t NumKeptLayers(const ModelConfig& config,
                      int64_t lora_rank,
                      at::ScalarType dtype,
                      int64_t tokens,
                      int64_t bytes);

// Returns the bytes that a pass of `tokens` tokens and `rows` rows keeps until
// Backward.
int64_t TrainingPassBytes(const ModelWeights& weights,
                          const Adapter& adapter,
                          int64_t tokens,
                          int64_t rows,
                          int64_t activation_bytes);

// Returns the final-norm hidden states that a TrainingPass would compute, bit
// for bit, and keeps nothing.
at::Tensor ForwardWithoutGradient(const ModelWeights& weights,
                                  const Adapter& adapter,
                                  const PackedTokens& tokens,
                                  const at::Tensor& rows);

}  // namespace dapd
