#include "common/model/spec/answer_memory.h"

#include <algorithm>

#include "common/model/spec/decoding_memory.h"
#include "common/model/spec/memory_plan.h"

namespace dapd {

bool IsAlone(const DeviceMemory& gpu) {
  return gpu.total - gpu.free - gpu.own <= kOwnOutside;
}

int64_t AnswerMemory(const Config& config,
                     const ModelConfig& model,
                     const DeviceMemory& gpu) {
  if (config.rollout.kv_memory_mib > 0) {
    return config.rollout.kv_memory_mib << 20;
  }
  const int64_t processes = config.run.gpu_processes;
  const int64_t half = ShareOf(gpu, processes).free / 2;
  if (processes > 1 || !IsAlone(gpu)) return half;
  const DecodingMemory decoding =
      DecodingMemoryOf(config, model, kPromptTokens);
  // In float32, as it arrives.
  const double adapter =
      4.0 * static_cast<double>(LoraParameters(config, model));
  const double later = adapter + decoding.packed + decoding.AtMost() +
                       decoding.outside + PartsOfRanks(config, model);
  const double holes = kGpuHoles * static_cast<double>(gpu.total);
  return std::max(half, gpu.free - static_cast<int64_t>(later + holes));
}

DeviceMemory GpuOfWorker(const Config& config,
                         const ModelConfig& model,
                         int64_t total) {
  const DecodingMemory decoding =
      DecodingMemoryOf(config, model, kPromptTokens);
  const auto own = static_cast<int64_t>(
      ShardBytes(config, model, config.rollout.tensor_parallel) +
      decoding.tables + decoding.workspace);
  const auto context = static_cast<int64_t>(kGpuContextBytes);
  return {.total = total,
          .free = std::max<int64_t>(0, total - own - context),
          .own = own};
}

}  // namespace dapd
