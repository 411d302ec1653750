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
  // By NormPlace, [hidden] or [head_dim]; undefined if the recipe has none.
  std::array<at::Tensor, kNumNormPlaces> norms;
  // [out, in] by Projection; biases [out], undefined if there is none.
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
  std::vector<LayerWeights> layers;  // empty if `source` has them
  std::shared_ptr<LayerSource> source;
  at::Tensor final_norm;  // [hidden]
  at::Tensor head;        // [vocab, hidden]; the embedding itself when tied
  // SHA-256 over the architecture and every tensor's name and shape. It differs
  // between architectures, but not between two fine-tunings; the probe
  // distinguishes fine-tunings.
  std::string layout_digest;

  at::ScalarType dtype() const { return embedding.scalar_type(); }
  at::Device device() const { return embedding.device(); }
};

// Returns the part to keep of a projection's weight [out, in]; it may be a
// view, which then keeps the whole weight in memory.
using WeightPart = std::function<at::Tensor(const ProjectionRecipe& projection,
                                            const at::Tensor& whole)>;

// Reads model.safetensors or the shards of model.safetensors.index.json of a
// Hugging Face folder and converts to `dtype` (float32 or bfloat16) on
// `device`. The files must satisfy OpenWeightFiles (weight_files.h), which is
// checked before any value is read, and all values must be finite; an error
// names the tensor and the file. A GPU must support the model (CheckGpuModel).
// An untied model must have lm_head.weight; a tied model may have it, but then
// it must equal the embedding. With `part` only that part of each projection's
// weight is kept, and moved to `device`.
absl::StatusOr<std::shared_ptr<const ModelWeights>> LoadModelWeights(
    const std::string& folder,
    at::ScalarType dtype,
    at::Device device,
    const WeightPart& part = nullptr);

// The part of a model that turns final-norm hidden states into logits.
struct HeadWeights {
  ModelConfig config;
  at::Tensor head;            // [vocab, hidden]
  std::string layout_digest;  // of the whole model, as in ModelWeights
};

// Reads the head alone from a folder for which LoadModelWeights holds: the
// embedding of a tied model, else lm_head.weight. All files must satisfy
// OpenWeightFiles; a tied model's lm_head is not compared with its embedding,
// which the model's worker does.
absl::StatusOr<HeadWeights> LoadHeadWeights(const std::string& folder,
                                            at::ScalarType dtype,
                                            at::Device device);

// Returns the stored precision of a Hugging Face folder's matrices: bfloat16 if
// all of them are bfloat16, else float32. Reads the headers only.
absl::StatusOr<at::ScalarType> StoredPrecision(const std::string& folder);

}  // namespace dapd
