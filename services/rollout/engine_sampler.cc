#include "services/rollout/engine_sampler.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/collective/device_group.h"
#include "common/generation/backend_relay.h"
#include "common/generation/engine.h"
#include "common/generation/make_decode_backend.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/describe_worker.h"
#include "common/model/weights/device_memory.h"
#include "common/model/weights/worker_placement.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

class EngineSampler : public Sampler {
 public:
  EngineSampler(ModelConfig model,
                at::Device device,
                std::unique_ptr<DecodeBackend> backend,
                const EngineOptions& options)
      : model_(std::move(model)),
        device_(device),
        engine_(std::move(backend), options) {}

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    std::shared_ptr<const Adapter> adapter;
    if (!upload.is_base) {
      ASSIGN_OR_RETURN(Adapter parsed,
                       ParseAdapter(upload.adapter, model_, device_));
      adapter = std::make_shared<const Adapter>(std::move(parsed));
    }
    RETURN_IF_ERROR(Use(adapter));
    absl::StatusOr<AppliedAdapter> applied = Probe(upload.probe_ids);
    if (!applied.ok()) {
      RETURN_IF_ERROR(Use(adapter_));
      return applied;
    }
    adapter_ = std::move(adapter);
    applied->modules_applied = adapter_ == nullptr ? 0 : adapter_->NumModules();
    return applied;
  }

  absl::StatusOr<AppliedAdapter> Probe(
      const std::vector<int32_t>& probe_ids) override {
    AppliedAdapter applied;
    applied.modules_applied = adapter_ == nullptr ? 0 : adapter_->NumModules();
    RETURN_IF_ERROR(CatchTorch([&] {
      applied.probe_logprobs = engine_.ScoreTokens(probe_ids);
      return absl::OkStatus();
    }));
    return applied;
  }

  absl::Status Submit(uint64_t id, DecodeRequest request) override {
    return CatchTorch([&] { return engine_.Submit(id, std::move(request)); });
  }

  void Cancel(uint64_t id) override {
    const absl::Status status = CatchTorch([&] {
      engine_.Cancel(id);
      return absl::OkStatus();
    });
    // Of a device that fails: the next step says so, too.
    if (!status.ok()) {
      LogWarning(absl::StrCat("an answer could not be stopped: ",
                              std::string(status.message())));
    }
  }

  absl::StatusOr<std::vector<SampledToken>> Step() override {
    std::vector<SampledToken> tokens;
    RETURN_IF_ERROR(CatchTorch([&] {
      tokens = engine_.Step();
      return absl::OkStatus();
    }));
    return tokens;
  }

  int64_t num_free() const override { return engine_.num_free(); }
  KvUse kv_use() const override { return engine_.kv_use(); }

 private:
  absl::Status Use(const std::shared_ptr<const Adapter>& adapter) {
    return CatchTorch([&] {
      engine_.SetAdapter(adapter);
      return absl::OkStatus();
    });
  }

  const ModelConfig model_;
  const at::Device device_;
  std::shared_ptr<const Adapter> adapter_;  // null: the base
  GenerationEngine engine_;
};

WorkerDescription Describe(const Config& config, const ModelWeights& weights) {
  WorkerDescription description =
      DescribeWorker("rollout", weights, config.lora.rank);
  description.max_in_flight = config.rollout.slots;
  return description;
}

// Of all answers together; 0: as the backend has it. On a GPU that others
// share, half of what this process may still take, for they come for theirs.
int64_t KvMemory(const Config& config, at::Device device) {
  if (config.rollout.kv_memory_mib > 0 || config.run.gpu_processes == 1) {
    return config.rollout.kv_memory_mib << 20;
  }
  const std::optional<DeviceMemory> memory =
      MemoryOf(device, config.run.gpu_processes);
  return memory.has_value() ? memory->free / 2 : 0;
}

std::unique_ptr<Sampler> MakeSampler(const Config& config,
                                     at::Device device,
                                     std::unique_ptr<DecodeBackend> backend) {
  ModelConfig model = backend->config();
  return std::make_unique<EngineSampler>(
      std::move(model),
      device,
      std::move(backend),
      EngineOptions{.kv_memory_bytes = KvMemory(config, device)});
}

// How a rank computes with its share of the model, whose weights the backend
// keeps as it needs them.
struct Share {
  at::Device device = at::kCPU;
  WorkerDescription description;
  std::unique_ptr<DecodeBackend> backend;
};

// Blocks until all ranks have theirs.
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
      std::unique_ptr<DeviceGroup> devices,
      DeviceGroup::Join(
          ranks, placement.device, config.trainer.rank_timeout_seconds));
  Share share{.device = placement.device,
              .description = Describe(config, weights->shard)};
  share.backend = MakeSharedDecodeBackend(
      std::move(weights),
      std::move(devices),
      {.slots = config.rollout.slots, .num_tokens = num_tokens});
  std::vector<float> present = {1.0F};
  RETURN_IF_ERROR(ranks.Sum(absl::MakeSpan(present)));
  return share;
}

}  // namespace

absl::StatusOr<LoadedSampler> LoadEngineSampler(const Config& config,
                                                int64_t num_tokens) {
  ASSIGN_OR_RETURN(
      const WorkerPlacement placement,
      OpenWorkerPlacement(config, "rollout", &MemoryPlan::rollout));
  ASSIGN_OR_RETURN(
      std::shared_ptr<const ModelWeights> weights,
      LoadModelWeights(config.model.path, placement.dtype, placement.device));
  LoadedSampler loaded;
  loaded.description = Describe(config, *weights);
  RETURN_IF_ERROR(CatchTorch([&] {
    // The backend keeps what it needs; the rest of the weights is given back
    // before the engine looks how much memory is left.
    std::unique_ptr<DecodeBackend> backend = MakeDecodeBackend(
        std::move(weights),
        {.slots = config.rollout.slots, .num_tokens = num_tokens});
    loaded.sampler = MakeSampler(config, placement.device, std::move(backend));
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
    loaded.description = share.description;
    loaded.sampler = MakeSampler(
        config,
        share.device,
        LeadBackend(std::move(share.backend), ranks, std::move(on_lost)));
    return absl::OkStatus();
  }));
  return loaded;
}

absl::Status ServeSharedSampler(const Config& config,
                                int64_t num_tokens,
                                Collective& ranks) {
  return CatchTorch([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Share share, LoadShare(config, num_tokens, ranks));
    return FollowBackend(*share.backend, share.device, ranks);
  });
}

}  // namespace dapd
