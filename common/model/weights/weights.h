// The frozen base weights of a model, in memory on one device.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/spec/model_config.h"
#include "common/tensor/aten.h"

namespace dapd {

struct LayerWeights {
  // By NormPlace, [hidden] or [head_dim]; undefined where the recipe has none.
  std::array<at::Tensor, kNumNormPlaces> norms;
  // [out, in] by Projection; biases [out], undefined where there is none.
  std::vector<at::Tensor> weight;
  std::vector<at::Tensor> bias;

  const at::Tensor& norm(NormPlace place) const {
    return norms[static_cast<size_t>(place)];
  }
};

class LayerSource;  // layer_source.h

// Immutable once loaded: an adapter is never merged into it. Shared by every
// reader. No tensor requires grad.
struct ModelWeights {
  ModelConfig config;
  at::Tensor embedding;              // [vocab, hidden]
  std::vector<LayerWeights> layers;  // empty where `source` has them
  std::shared_ptr<LayerSource> source;
  at::Tensor final_norm;  // [hidden]
  at::Tensor head;        // [vocab, hidden]; the embedding itself when tied
  // SHA-256 over the architecture and every tensor's name and shape. Tells two
  // architectures apart, not two fine-tunings: for those there is the probe.
  std::string layout_digest;

  at::ScalarType dtype() const { return embedding.scalar_type(); }
  at::Device device() const { return embedding.device(); }
};

// What to keep of a projection's weight [out, in] as it was read; it may be a
// view, which then keeps the whole alive.
using WeightPart = std::function<at::Tensor(const ProjectionRecipe& projection,
                                            const at::Tensor& whole)>;

// Reads model.safetensors or the shards of model.safetensors.index.json of a
// Hugging Face folder and converts to `dtype` (float32 or bfloat16) on
// `device`. The files must be as OpenWeightFiles (weight_files.h) asks, which
// is found out before any value is read, and all values must be finite; an
// error names the tensor and the file. A GPU must take the model
// (CheckGpuModel). A tied model may carry lm_head.weight, which then has to be
// its embedding; an untied one must. With `part` only that of each projection's
// weight is kept, before it goes to `device`.
absl::StatusOr<std::shared_ptr<const ModelWeights>> LoadModelWeights(
    const std::string& folder,
    at::ScalarType dtype,
    at::Device device,
    const WeightPart& part = nullptr);

// What a Hugging Face folder's matrices are stored in: bfloat16 if all of them
// are, float32 for anything else. Reads the headers only.
absl::StatusOr<at::ScalarType> StoredPrecision(const std::string& folder);

}  // namespace dapd
