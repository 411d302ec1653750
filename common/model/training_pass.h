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

  // Final-norm hidden states [R, hidden].
  virtual const at::Tensor& hidden() const = 0;
  // Layers whose activations are kept.
  virtual int64_t num_kept_layers() const = 0;

  // The gradient of a loss with respect to the adapter, from `grad_hidden`, the
  // one with respect to hidden(): by layer, new tensors where the adapter has
  // them. To be called once, for it frees the activations.
  virtual std::vector<LoraLayer> Backward(const at::Tensor& grad_hidden) = 0;
};

// Runs the forward pass. `rows` [R] int64 as in ForwardHidden.
// `activation_bytes`: limit of all kept activations; 0 keeps each layer's input
// only, as does LibTorch whatever the limit. `prefixes`, none or one per
// sequence: chunks that were computed before and, where LayerPass computes the
// model, are not computed again. `weights` and `adapter` must outlive the pass,
// and the adapter must not change before Backward.
std::unique_ptr<TrainingPass> MakeTrainingPass(
    const ModelWeights& weights,
    const Adapter& adapter,
    const PackedTokens& tokens,
    const at::Tensor& rows,
    int64_t activation_bytes,
    const std::vector<SequencePrefix>& prefixes = {});

// Layers whose activations a pass of `tokens` tokens keeps in `bytes`.
int64_t NumKeptLayers(const ModelConfig& config,
                      int64_t lora_rank,
                      at::ScalarType dtype,
                      int64_t tokens,
                      int64_t bytes);

// Bytes that a pass keeps until Backward, of `tokens` tokens and `rows` rows.
int64_t TrainingPassBytes(const ModelWeights& weights,
                          const Adapter& adapter,
                          int64_t tokens,
                          int64_t rows,
                          int64_t activation_bytes);

// Final-norm hidden states as a TrainingPass computes them, bit for bit,
// keeping nothing.
at::Tensor ForwardWithoutGradient(const ModelWeights& weights,
                                  const Adapter& adapter,
                                  const PackedTokens& tokens,
                                  const at::Tensor& rows);

}  // namespace dapd
