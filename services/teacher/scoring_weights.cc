#include "services/teacher/scoring_weights.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/model/reference/token_logprobs.h"
#include "common/model/spec/executor_support.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {

ScoringWeights::ScoringWeights(ModelWeights base,
                               const LoraConfig* lora,
                               std::unique_ptr<const Adapter> own)
    : base_(std::move(base)) {
  if (own != nullptr) lora = &own->config;
  std::unique_ptr<const Adapter>& of_base = adapters_[WeightSet::kBase];
  of_base = std::move(own);
  const bool is_supported =
      WarnUnlessSupported("scoring", Executor::kLayerPass, base_.config);
  if (is_supported && base_.device().is_cuda()) Pack(lora);
}

void ScoringWeights::Pack(const LoraConfig* lora) {
  packed_.reset();
  applied_ = nullptr;
  packed_ = std::make_unique<PackedWeights>(
      base_, AdapterForm::kColumns, lora, /*merge=*/nullptr);
}

absl::StatusOr<AppliedAdapter> ScoringWeights::Load(
    const AdapterUpload& upload) {
  std::unique_ptr<const Adapter> adapter;
  if (!upload.is_base) {
    ASSIGN_OR_RETURN(
        Adapter parsed,
        ParseAdapter(upload.adapter, base_.config, base_.device()));
    adapter = std::make_unique<const Adapter>(std::move(parsed));
  }
  ASSIGN_OR_RETURN(AppliedAdapter applied,
                   ProbeWith(adapter.get(), upload.probe_ids));
  if (packed_ != nullptr && !packed_->Fits(adapter.get())) {
    RETURN_IF_ERROR(CatchTorch([&] {
      Pack(&adapter->config);
      return absl::OkStatus();
    }));
  }
  std::unique_ptr<const Adapter>& own = adapters_[upload.set];
  if (own.get() == applied_) applied_ = nullptr;
  own = std::move(adapter);
  return applied;
}

absl::StatusOr<AppliedAdapter> ScoringWeights::Probe(
    WeightSet set, const std::vector<int32_t>& probe_ids) const {
  return ProbeWith(adapters_.at(set).get(), probe_ids);
}

absl::StatusOr<AppliedAdapter> ScoringWeights::ProbeWith(
    const Adapter* adapter, const std::vector<int32_t>& probe_ids) const {
  AppliedAdapter applied;
  applied.modules_applied = adapter == nullptr ? 0 : adapter->NumModules();
  RETURN_IF_ERROR(CatchTorch([&] {
    const at::Tensor logprobs = TokenLogprobs(base_, adapter, probe_ids);
    const float* values = logprobs.const_data_ptr<float>();
    applied.probe_logprobs.assign(values, values + logprobs.numel());
    return absl::OkStatus();
  }));
  return applied;
}

std::vector<ChunkStates> ScoringWeights::Forward(
    WeightSet set, std::span<const NextChunk> chunks, int64_t rows) {
  const Adapter* adapter = adapters_.at(set).get();
  if (packed_ == nullptr || !packed_->Fits(adapter)) {
    return ForwardChunks(base_, adapter, chunks, rows);
  }
  if (adapter != nullptr && adapter != applied_) {
    applied_ = nullptr;  // applied_ stays null if applying fails half way
    packed_->Apply(adapter);
    applied_ = adapter;
  }
  return ForwardChunks(
      base_, *packed_, /*with_adapter=*/adapter != nullptr, chunks, rows);
}

}  // namespace dapd
