#include "common/model/weights/layer_source.h"

namespace dapd {
namespace {

class WalkInMemory final : public LayerWalk {
 public:
  explicit WalkInMemory(const ModelWeights& weights) : weights_(weights) {}

  LayerWeights Next(int64_t index) override {
    return weights_.layers[static_cast<size_t>(index)];
  }

 private:
  const ModelWeights& weights_;
};

}  // namespace

std::unique_ptr<LayerWalk> WalkLayers(const ModelWeights& weights,
                                      WalkKind kind) {
  if (weights.source != nullptr) return weights.source->Begin(kind);
  return std::make_unique<WalkInMemory>(weights);
}

}  // namespace dapd
