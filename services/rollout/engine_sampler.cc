#include "services/rollout/engine_sampler.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/generation/engine.h"
#include "common/generation/make_decode_backend.h"
#include "common/model/adapter.h"
#include "common/model/describe_worker.h"
#include "common/model/placement.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

SequenceEnd ToSequenceEnd(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return SequenceEnd::kRunning;
    case FinishReason::kEos:
      return SequenceEnd::kEos;
    case FinishReason::kLength:
      return SequenceEnd::kLength;
  }
  return SequenceEnd::kRunning;
}

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

  absl::Status Submit(SequenceInput input) override {
    return CatchTorch([&] {
      return engine_.Submit(
          {input.id, std::move(input.prompt_ids), input.sampling, input.key});
    });
  }

  void Cancel(uint64_t id) override { engine_.Cancel(id); }

  absl::StatusOr<std::vector<SampledToken>> Step() override {
    std::vector<SampledToken> tokens;
    RETURN_IF_ERROR(CatchTorch([&] {
      for (const TokenEvent& event : engine_.Step()) {
        tokens.push_back({event.id,
                          event.token,
                          event.logprob,
                          ToSequenceEnd(event.finish)});
      }
      return absl::OkStatus();
    }));
    return tokens;
  }

  int64_t num_free() const override { return engine_.num_free(); }

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

}  // namespace

absl::StatusOr<LoadedSampler> LoadEngineSampler(const Config& config,
                                                int64_t num_tokens) {
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(const at::Device device, ParseDevice(config.model.device));
  ASSIGN_OR_RETURN(const at::ScalarType dtype,
                   ParsePrecision(config.model.precision));
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadModelWeights(config.model.path, dtype, device));
  LoadedSampler loaded;
  loaded.description = DescribeWorker("rollout", *weights, config.lora.rank);
  loaded.description.max_in_flight = config.rollout.slots;
  ModelConfig model = weights->config;
  std::unique_ptr<DecodeBackend> backend;
  RETURN_IF_ERROR(CatchTorch([&] {
    // The backend keeps what it needs; the rest of the weights is given back.
    backend = MakeDecodeBackend(
        std::move(weights),
        {.slots = config.rollout.slots, .num_tokens = num_tokens});
    return absl::OkStatus();
  }));
  loaded.sampler = std::make_unique<EngineSampler>(
      std::move(model),
      device,
      std::move(backend),
      EngineOptions{.kv_memory_bytes = config.rollout.kv_memory_mib << 20});
  return loaded;
}

}  // namespace dapd
