// The decoder over packed sequences with the adapter's gradient, by hand and
// without autograd. Activations are kept for as many layers as a memory budget
// allows; the others run again in the backward pass (Chen et al. 2016,
// "Training deep nets with sublinear memory cost"). The numbers do not depend
// on the budget; on a GPU that is said of the bits with model.deterministic
// only, for flash attention's backward pass adds in no fixed order otherwise.
// The reference implementation is ForwardHidden (decoder.h) under autograd.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "common/model/fast/layer_pass.h"
#include "common/model/fast/sequence_tails.h"
#include "common/model/reference/decoder.h"
#include "common/model/weights/layer_source.h"
#include "common/tensor/aten.h"

namespace dapd {

inline constexpr int64_t kUnlimitedActivations =
    std::numeric_limits<int64_t>::max();

class TrainingPass {
 public:
  // Runs the forward pass. `rows` [R] int64 as in ForwardHidden.
  // `activation_bytes`: what kept activations may take in all; 0 keeps each
  // layer's input only. `prefixes`, none or one per sequence: chunks that are
  // not computed again, and nothing but inputs is kept where there are any.
  // `weights` and `adapter` must outlive the pass, and the adapter must not
  // change before Backward.
  TrainingPass(const ModelWeights& weights,
               const Adapter& adapter,
               const PackedTokens& tokens,
               const at::Tensor& rows,
               int64_t activation_bytes,
               const std::vector<SequencePrefix>& prefixes = {});

  // Final-norm hidden states [R, hidden].
  const at::Tensor& hidden() const { return hidden_; }
  // Layers whose activations are kept.
  int64_t num_kept_layers() const { return num_kept_; }

  // The gradient of a loss with respect to the adapter, from `grad_hidden`, the
  // one with respect to hidden(): by layer, new tensors where the adapter has
  // them. To be called once, for it frees the activations.
  std::vector<LoraLayer> Backward(const at::Tensor& grad_hidden);

 private:
  at::Tensor ForwardWhole(const PackedTokens& tokens);
  at::Tensor ForwardTails(const PackedTokens& tokens);
  // Rows that go on after a layer's attention; undefined: all.
  at::Tensor RowsBehind(int64_t layer) const;

  const ModelWeights& weights_;
  const Adapter& adapter_;
  const at::Tensor rows_;
  const RotaryAngles angles_;
  const FlashAttention attention_;
  const std::unique_ptr<LayerWalk> walk_;
  std::optional<SequenceTails> tails_;  // where some of a sequence was computed
  int64_t num_kept_ = 0;
  // One per layer; those that are not kept hold only the input, of the tails if
  // there are any.
  std::vector<LayerActivations> activations_;
  at::Tensor last_;    // [R, hidden], before the final norm
  at::Tensor hidden_;  // [R, hidden]
};

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

// Final-norm hidden states as TrainingPass computes them, bit for bit, keeping
// nothing.
at::Tensor ForwardWithoutGradient(const ModelWeights& weights,
                                  const Adapter& adapter,
                                  const PackedTokens& tokens,
                                  const at::Tensor& rows);

}  // namespace dapd
