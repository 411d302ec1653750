// The TrainingPass of models that LayerPass computes: the gradient by hand and
// without autograd. Activations are kept for as many layers as a memory budget
// allows; the others run again in the backward pass (Chen et al. 2016,
// "Training deep nets with sublinear memory cost"). The numbers do not depend
// on the budget; on a GPU that is said of the bits with model.deterministic
// only, for flash attention's backward pass adds in no fixed order otherwise.
// The reference implementation is ForwardHidden (decoder.h) under autograd.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/model/fast/layer_pass.h"
#include "common/model/fast/sequence_tails.h"
#include "common/model/reference/decoder.h"
#include "common/model/training_pass.h"
#include "common/model/weights/layer_source.h"
#include "common/tensor/aten.h"

namespace dapd {

class FastTrainingPass final : public TrainingPass {
 public:
  // Takes the arguments of MakeTrainingPass. Prefixes are not computed again,
  // and only inputs are kept if there are prefixes.
  FastTrainingPass(const ModelWeights& weights,
                   const Adapter& adapter,
                   const PackedTokens& tokens,
                   const at::Tensor& rows,
                   int64_t activation_bytes,
                   const std::vector<SequencePrefix>& prefixes = {});

  const at::Tensor& hidden() const override { return hidden_; }
  int64_t num_kept_layers() const override { return num_kept_; }
  std::vector<LoraLayer> Backward(const at::Tensor& grad_hidden) override;

 private:
  // Both return the output of the last layer, R rows.
  ResidualStream ForwardWhole(const PackedTokens& tokens);
  ResidualStream ForwardTails(const PackedTokens& tokens);
  // Returns the rows that continue after the attention of `layer`; undefined:
  // all rows.
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

// Returns the final-norm hidden states of a FastTrainingPass, bit for bit, and
// keeps nothing.
at::Tensor FastForwardWithoutGradient(const ModelWeights& weights,
                                      const Adapter& adapter,
                                      const PackedTokens& tokens,
                                      const at::Tensor& rows);

}  // namespace dapd
