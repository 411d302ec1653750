#include "services/rollout/engine_sampler.h"

#include <utility>
#include <vector>

#include "common/base/return_freed_memory.h"
#include "common/base/status_macros.h"
#include "common/collective/device_group.h"
#include "common/generation/backend_relay.h"
#include "common/generation/engine.h"
#include "common/generation/make_decode_backend.h"
#include "common/model/weights/describe_worker.h"
#include "common/model/weights/kv_memory.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/worker_placement.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/torch_bridge.h"
#include "services/rollout/backend_sampler.h"

namespace dapd {
namespace {

std::unique_ptr<Sampler> MakeSampler(const Config& config,
                                     at::Device device,
                                     std::unique_ptr<DecodeBackend> backend) {
  const int64_t kv_memory = KvMemoryBytes(config, backend->config(), device);
  return MakeBackendSampler(
      std::move(backend), device, EngineOptions{.kv_memory_bytes = kv_memory});
}

DecodeBackendOptions BackendOptions(const Config& config, int64_t num_tokens) {
  return {.slots = config.rollout.slots,
          .num_tokens = num_tokens,
          .kv_float8 = config.rollout.kv_precision == KvPrecision::kFloat8};
}

WorkerDescription Describe(const Config& config, const ModelWeights& weights) {
  WorkerDescription description =
      DescribeWorker("rollout", weights, config.lora.rank);
  description.precision = SamplingPrecision(PrecisionOf(weights.dtype()),
                                            config.rollout.kv_precision);
  return description;
}

// A rank's device, and the backend for its share of the model, which keeps the
// weights in the form that it needs.
struct Share {
  at::Device device = at::kCPU;
  WorkerDescription description;
  std::shared_ptr<DeviceGroup> devices;
  std::unique_ptr<DecodeBackend> backend;
};

// Blocks until all ranks have read their shares.
absl::StatusOr<Share> LoadShare(const Config& config,
                                int64_t num_tokens,
                                Collective& ranks) {
  ASSIGN_OR_RETURN(
      const WorkerPlacement placement,
      OpenWorkerPlacement(config, "rollout", &MemoryPlan::rollout));
  ASSIGN_OR_RETURN(std::shared_ptr<const ShardedWeights> weights,
                   LoadShardedWeights(config.model.path,
                                      placement.dtype,
                                      placement.device,
                                      {ranks.rank(), ranks.size()}));
  ASSIGN_OR_RETURN(
      std::shared_ptr<DeviceGroup> devices,
      DeviceGroup::Join(
          ranks, placement.device, config.trainer.rank_timeout_seconds));
  Share share{.device = placement.device,
              .description = Describe(config, weights->shard),
              .devices = devices};
  share.backend = MakeSharedDecodeBackend(std::move(weights),
                                          std::move(devices),
                                          ranks,
                                          BackendOptions(config, num_tokens));
  ReturnFreedMemory();
  std::vector<float> present = {1.0F};
  RETURN_IF_ERROR(ranks.Sum(absl::MakeSpan(present)));
  return share;
}

}  // namespace

LoadedSampler Offer(WorkerDescription description,
                    std::unique_ptr<Sampler> sampler) {
  // No sequence runs yet.
  description.max_in_flight = sampler->num_free();
  return {std::move(sampler), std::move(description)};
}

absl::StatusOr<LoadedSampler> LoadEngineSampler(const Config& config,
                                                int64_t num_tokens) {
  ASSIGN_OR_RETURN(
      const WorkerPlacement placement,
      OpenWorkerPlacement(config, "rollout", &MemoryPlan::rollout));
  ASSIGN_OR_RETURN(
      std::shared_ptr<const ModelWeights> weights,
      LoadModelWeights(config.model.path, placement.dtype, placement.device));
  WorkerDescription description = Describe(config, *weights);
  LoadedSampler loaded;
  RETURN_IF_ERROR(CatchTorch([&] {
    // The backend keeps the weights that it needs; the rest is released before
    // the engine looks for free memory.
    std::unique_ptr<DecodeBackend> backend = MakeDecodeBackend(
        std::move(weights), BackendOptions(config, num_tokens));
    ReturnFreedMemory();
    loaded = Offer(std::move(description),
                   MakeSampler(config, placement.device, std::move(backend)));
    return absl::OkStatus();
  }));
  return loaded;
}

absl::StatusOr<LoadedSampler> LoadSharedSampler(const Config& config,
                                                int64_t num_tokens,
                                                Collective& ranks,
                                                OnRanksLost on_lost) {
  LoadedSampler loaded;
  RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    ASSIGN_OR_RETURN(Share share, LoadShare(config, num_tokens, ranks));
    loaded = Offer(std::move(share.description),
                   MakeSampler(config,
                               share.device,
                               LeadBackend(std::move(share.backend),
                                           ranks,
                                           std::move(share.devices),
                                           std::move(on_lost))));
    return absl::OkStatus();
  }));
  return loaded;
}

absl::Status ServeSharedSampler(const Config& config,
                                int64_t num_tokens,
                                Collective& ranks) {
  return CatchTorch([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Share share, LoadShare(config, num_tokens, ranks));
    return FollowBackend(*share.backend, share.device, ranks, *share.devices);
  });
}

}  // namespace dapd
