// Which executor computes which recipe. The operations of LibTorch
// (common/model/reference) compute every recipe, on any device; a faster
// executor says here what it does not compute, and a model that has that is
// computed by LibTorch in its place.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

enum class Executor {
  kLayerPass,    // model/fast/layer_pass.h: training and scoring
  kCpuDecoder,   // generation/cpu/cpu_decoder.h
  kCudaDecoder,  // generation/cuda/cuda_decoder.h
  kHeadKernels,  // objective/head_loss.h: the loss by kernels
};

// Why `executor` does not compute `model`: "attention scores are capped
// (softcap 50), ..."; empty: it does.
std::string Misfit(Executor executor, const ModelConfig& model);

inline bool Supports(Executor executor, const ModelConfig& model) {
  return Misfit(executor, model).empty();
}

// "by LibTorch, since attention scores are capped (softcap 50)": behind the
// name of the work, the line that a service logs and that `dapd check` prints.
std::string ByLibTorch(const std::string& misfit);

// Work of a run that LibTorch does in the place of a faster executor.
struct SlowWork {
  std::string work;    // "decoding", "training", "scoring", "loss"
  std::string misfit;  // why
};
// In that order; `on_gpu`: whether GPUs compute.
std::vector<SlowWork> SlowWorkOf(const ModelConfig& model, bool on_gpu);

}  // namespace dapd
