#include "common/model/training_pass.h"

#include <algorithm>

#include "common/model/fast/fast_training_pass.h"
#include "common/model/reference/autograd_pass.h"
#include "common/model/spec/executor_support.h"

namespace dapd {

std::unique_ptr<TrainingPass> MakeTrainingPass(
    const ModelWeights& weights,
    const Adapter& adapter,
    const PackedTokens& tokens,
    const at::Tensor& rows,
    int64_t activation_bytes,
    const std::vector<SequencePrefix>& prefixes) {
  if (!Supports(Executor::kLayerPass, weights.config)) {
    return std::make_unique<AutogradPass>(weights, adapter, tokens, rows);
  }
  return std::make_unique<FastTrainingPass>(
      weights, adapter, tokens, rows, activation_bytes, prefixes);
}

int64_t NumKeptLayers(const ModelConfig& config,
                      int64_t lora_rank,
                      at::ScalarType dtype,
                      int64_t tokens,
                      int64_t bytes) {
  if (!Supports(Executor::kLayerPass, config)) return 0;
  return std::min(
      config.num_layers,
      bytes / (tokens * ActivationBytesPerRow(config, lora_rank, dtype)));
}

int64_t TrainingPassBytes(const ModelWeights& weights,
                          const Adapter& adapter,
                          int64_t tokens,
                          int64_t rows,
                          int64_t activation_bytes) {
  const ModelConfig& config = weights.config;
  const int64_t rank = adapter.config.rank;
  const int64_t kept =
      NumKeptLayers(config, rank, weights.dtype(), tokens, activation_bytes);
  // Inputs of all layers; two states of a row after the last layer.
  const int64_t states = tokens * config.num_layers + 2 * rows;
  return states * config.hidden_size *
             static_cast<int64_t>(c10::elementSize(weights.dtype())) +
         kept * tokens * ActivationBytesPerRow(config, rank, weights.dtype());
}

at::Tensor ForwardWithoutGradient(const ModelWeights& weights,
                                  const Adapter& adapter,
                                  const PackedTokens& tokens,
                                  const at::Tensor& rows) {
  if (Supports(Executor::kLayerPass, weights.config)) {
    return FastForwardWithoutGradient(weights, adapter, tokens, rows);
  }
  const at::NoGradGuard no_grad;
  return ForwardHidden(weights, &adapter, tokens, rows);
}

}  // namespace dapd
