// Runs the decoder over packed sequences and computes the adapter's gradient by
// hand, without autograd. Activations are kept for as many layers as a memory
// budget allows; the other layers run again in the backward pass (Chen et al.
// 2016, "Training deep nets with sublinear memory cost"). The bits do not
// depend on the budget; on a GPU this holds with model.deterministic only,
// since the backward pass of flash attention has no fixed order of sums
// otherwise. The reference implementation is ForwardHidden (decoder.h) under
// autograd.
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
  // `activation_bytes` is the most memory of all kept activations; 0 keeps only
  // the input of each layer. `prefixes` is empty or has one element per
  // sequence: chunks that are not computed again. If any sequence has chunks,
  // only inputs are kept. `weights` and `adapter` must outlive the pass, and
  // the adapter must not change before Backward.
  TrainingPass(const ModelWeights& weights,
               const Adapter& adapter,
               const PackedTokens& tokens,
               const at::Tensor& rows,
               int64_t activation_bytes,
               const std::vector<SequencePrefix>& prefixes = {});

  // Final-norm hidden states [R, hidden].
  const at::Tensor& hidden() const { return hidden_; }
  // Number of layers whose activations are kept.
  int64_t num_kept_layers() const { return num_kept_; }

  // Returns the gradient of a loss with respect to the adapter, from
  // `grad_hidden`, its gradient with respect to hidden(): by layer, new tensors
  // where the adapter has tensors. May be called once, since it frees the
  // activations.
  std::vector<LoraLayer> Backward(const at::Tensor& grad_hidden);

 private:
  // Both return the output of the last layer, R rows.
  ResidualStream ForwardWhole(const PackedTokens& tokens);
  ResidualStream ForwardTails(const PackedTokens& tokens);
  // Rows that go on behind the attention of `layer`; undefined: all rows.
  at::Tensor RowsBehind(int64_t layer) const;

  const ModelWeights& weights_;
  const Adapter& adapter_;
  const at::Tensor rows_;
  const RotaryAngles angles_;
  const VariableLengthAttention attention_;
  const std::unique_ptr<LayerWalk> walk_;
  std::optional<SequenceTails> tails_;  // if there are prefixes
  int64_t num_kept_ = 0;
  // One per layer. A layer that is not kept has only its input: the rows of the
  // tails if there are prefixes.
  std::vector<LayerActivations> activations_;
  at::Tensor last_;    // [R, hidden], before the final norm
  at::Tensor hidden_;  // [R, hidden]
};

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

// Returns the final-norm hidden states of TrainingPass, bit for bit, and keeps
// nothing.
at::Tensor ForwardWithoutGradient(const ModelWeights& weights,
                                  const Adapter& adapter,
                                  const PackedTokens& tokens,
                                  const at::Tensor& rows);

}  // namespace dapd
