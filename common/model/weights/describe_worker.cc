#include "common/model/weights/describe_worker.h"

#include "absl/strings/str_cat.h"

#include "common/base/random_name.h"
#include "common/model/weights/placement.h"

namespace dapd {
namespace {

// A safetensors header takes about 150 bytes a tensor.
constexpr uint64_t kMaxHeaderBytesPerTensor = 512;

}  // namespace

WorkerDescription DescribeWorker(const std::string& service,
                                 const ModelWeights& weights,
                                 int64_t max_rank) {
  const ModelConfig& config = weights.config;
  WorkerDescription description;
  description.service = service;
  description.instance = RandomName();
  description.layout_digest = weights.layout_digest;
  description.precision = NameOf(PrecisionOf(weights.dtype()));
  description.vocab_size = config.vocab_size;
  description.hidden_size = config.hidden_size;
  description.max_positions = config.max_positions;
  uint64_t tensors = 1;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    tensors += 2 * LayerRecipeOf(config, layer).projections.size();
  }
  description.max_adapter_bytes =
      sizeof(float) * static_cast<uint64_t>(NumLoraParameters(
                          config, max_rank, ProjectionNames(config))) +
      kMaxHeaderBytesPerTensor * tensors;
  return description;
}

std::string SamplingPrecision(Precision model, KvPrecision kv) {
  std::string text = NameOf(model);
  if (kv != KvPrecision::kModel) {
    absl::StrAppend(&text, ", keys and values in ", NameOf(kv));
  }
  return text;
}

}  // namespace dapd
