#include "services/rollout/engine_sampler.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/generation/engine.h"
#include "common/model/adapter.h"
#include "common/model/describe_worker.h"
#include "common/model/placement.h"
#include "common/model/token_logprobs.h"
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
  EngineSampler(std::shared_ptr<const ModelWeights> weights,
                const EngineOptions& options)
      : weights_(std::move(weights)), engine_(weights_, options) {}

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    std::shared_ptr<const Adapter> adapter;
    if (!upload.is_base) {
      ASSIGN_OR_RETURN(
          Adapter parsed,
          ParseAdapter(upload.adapter, weights_->config, weights_->device()));
      adapter = std::make_shared<const Adapter>(std::move(parsed));
    }
    ASSIGN_OR_RETURN(AppliedAdapter applied,
                     ProbeWith(adapter.get(), upload.probe_ids));
    RETURN_IF_ERROR(CatchTorch([&] {
      engine_.SetAdapter(adapter);
      return absl::OkStatus();
    }));
    adapter_ = std::move(adapter);
    return applied;
  }

  absl::StatusOr<AppliedAdapter> Probe(
      const std::vector<int32_t>& probe_ids) override {
    return ProbeWith(adapter_.get(), probe_ids);
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
  absl::StatusOr<AppliedAdapter> ProbeWith(
      const Adapter* adapter, const std::vector<int32_t>& probe_ids) const {
    AppliedAdapter applied;
    applied.modules_applied = adapter == nullptr ? 0 : adapter->NumModules();
    RETURN_IF_ERROR(CatchTorch([&] {
      const at::Tensor logprobs = TokenLogprobs(*weights_, adapter, probe_ids);
      const float* values = logprobs.const_data_ptr<float>();
      applied.probe_logprobs.assign(values, values + logprobs.numel());
      return absl::OkStatus();
    }));
    return applied;
  }

  const std::shared_ptr<const ModelWeights> weights_;
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
  EngineOptions options;
  options.slots = config.rollout.slots;
  options.num_tokens = num_tokens;
  loaded.sampler = std::make_unique<EngineSampler>(std::move(weights), options);
  return loaded;
}

}  // namespace dapd
