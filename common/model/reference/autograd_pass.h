// The TrainingPass of models that LayerPass does not compute: ForwardLayer
// (decoder_layer.h) under autograd. Only the inputs of the layers are kept; the
// backward pass runs one layer after the other again (Chen et al. 2016), so
// that one layer's graph is in memory at a time.
#pragma once

#include <memory>
#include <vector>

#include "common/model/reference/decoder.h"
#include "common/model/training_pass.h"
#include "common/model/weights/layer_source.h"
#include "common/tensor/aten.h"

namespace dapd {

class AutogradPass final : public TrainingPass {
 public:
  // Takes the arguments of MakeTrainingPass.
  AutogradPass(const ModelWeights& weights,
               const Adapter& adapter,
               const PackedTokens& tokens,
               const at::Tensor& rows);

  const at::Tensor& hidden() const override { return hidden_; }
  int64_t num_kept_layers() const override { return 0; }
  std::vector<LoraLayer> Backward(const at::Tensor& grad_hidden) override;

 private:
  at::Tensor RunLayer(int64_t layer,
                      const LayerWeights& weights,
                      const LoraLayer& lora,
                      const at::Tensor& x);

  const ModelWeights& weights_;
  const Adapter& adapter_;
  const at::Tensor rows_;
  const RotaryAngles angles_;
  PackedAttention attention_;
  const std::unique_ptr<LayerWalk> walk_;
  std::vector<at::Tensor> inputs_;  // by layer, [N, hidden]
  at::Tensor last_;                 // [N, hidden], output of the last layer
  at::Tensor hidden_;               // [R, hidden]
};

}  // namespace dapd
