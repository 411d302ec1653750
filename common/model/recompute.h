// A decoder layer whose activations are not kept: the backward pass runs it
// again (Chen et al. 2016, "Training deep nets with sublinear memory cost").
#pragma once

#include <functional>

#include "torch/torch.h"

#include "common/model/decoder_layer.h"

namespace dapd {

// x [N, hidden] and the layer's adapter tensors -> [N, hidden].
using LayerFunction =
    std::function<at::Tensor(const at::Tensor& x, const LoraLayer& lora)>;

// Equal to function(x, lora) in value and gradient, bit for bit. What
// `function` refers to must outlive the graph.
at::Tensor RunRecomputed(const LayerFunction& function,
                         const at::Tensor& x,
                         const LoraLayer& lora);

}  // namespace dapd
