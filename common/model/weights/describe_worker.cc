#include "common/model/weights/describe_worker.h"

#include <vector>

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
  std::vector<Projection> all;
  for (int i = 0; i < kNumProjections; ++i) {
    all.push_back(static_cast<Projection>(i));
  }
  WorkerDescription description;
  description.service = service;
  description.instance = RandomName();
  description.layout_digest = weights.layout_digest;
  description.precision = NameOf(PrecisionOf(weights.dtype()));
  description.vocab_size = config.vocab_size;
  description.hidden_size = config.hidden_size;
  description.max_positions = config.max_positions;
  const auto tensors =
      static_cast<uint64_t>(2 * kNumProjections * config.num_layers + 1);
  description.max_adapter_bytes =
      sizeof(float) *
          static_cast<uint64_t>(NumLoraParameters(config, max_rank, all)) +
      kMaxHeaderBytesPerTensor * tensors;
  return description;
}

}  // namespace dapd
