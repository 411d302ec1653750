#include "common/model/weights/kv_memory.h"

#include <optional>

#include "common/model/spec/answer_memory.h"
#include "common/model/spec/executor_support.h"
#include "common/model/weights/device_memory.h"

namespace dapd {

int64_t KvMemoryBytes(const Config& config,
                      const ModelConfig& model,
                      at::Device device) {
  if (config.rollout.kv_memory_mib > 0) {
    return config.rollout.kv_memory_mib << 20;
  }
  const std::optional<DeviceMemory> gpu = MemoryOf(device, /*processes=*/1);
  if (!gpu.has_value()) return 0;
  // LibTorch's caches are copied as they grow, which the rule does not count.
  const bool shares = config.run.gpu_processes > 1;
  if (!shares && !Supports(Executor::kCudaDecoder, model)) return 0;
  return AnswerMemory(config, model, *gpu);
}

}  // namespace dapd
