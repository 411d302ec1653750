// Decides which executor computes a recipe. The operations of LibTorch
// (common/model/reference) compute every recipe on any device. Each faster
// executor lists here the traits that it does not compute; LibTorch computes a
// model with such a trait in its place.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/model/spec/model_config.h"

namespace dapd {

enum class Executor {
  kLayerPass,    // model/fast/layer_pass.h: training and scoring
  kCpuDecoder,   // generation/cpu/cpu_decoder.h
  kCudaDecoder,  // generation/cuda/cuda_decoder.h
  kHeadKernels,  // objective/head_loss.h: the loss by kernels
};

// Returns the reason why `executor` does not compute `model` ("attention scores
// are capped (softcap 50), ..."); empty if it computes `model`.
std::string Misfit(Executor executor, const ModelConfig& model);

inline bool Supports(Executor executor, const ModelConfig& model) {
  return Misfit(executor, model).empty();
}

// Returns "by LibTorch, since attention scores are capped (softcap 50)", which
// follows the name of the work in the line that a service logs and `dapd check`
// prints.
std::string ByLibTorch(const std::string& misfit);

// Logs a warning, `work` followed by ByLibTorch, if `executor` does not compute
// `model`. Returns whether it computes `model`.
bool WarnUnlessSupported(absl::string_view work,
                         Executor executor,
                         const ModelConfig& model);

// Work of a run that LibTorch does in place of a faster executor.
struct SlowWork {
  std::string work;    // "decoding", "training", "scoring", "loss"
  std::string misfit;  // the result of Misfit
};
// Returns the slow work in the order above. `on_gpu`: whether GPUs compute.
std::vector<SlowWork> SlowWorkOf(const ModelConfig& model, bool on_gpu);

}  // namespace dapd
