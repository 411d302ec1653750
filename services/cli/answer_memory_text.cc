#include "services/cli/answer_memory_text.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "common/gpus/gpu.h"
#include "common/model/spec/answer_memory.h"
#include "common/model/spec/decoding_memory.h"
#include "common/model/spec/decoding_shape.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/number_bytes.h"
#include "services/cli/planned_gpu.h"

namespace dapd {

std::string AnswerMemoryText(const Config& config,
                             const ModelConfig& model,
                             double gpu_gib,
                             const GpuReport& here) {
  if (gpu_gib == 0 && !PlansForGpu(config)) return "";
  const PlannedGpu gpu = PlanGpu(config, gpu_gib, here, "rollout-0");
  const int64_t bytes = AnswerMemory(
      gpu.config,
      model,
      gpu.BesideOthers(GpuOfWorker(gpu.config, model, gpu.bytes())));
  const int64_t tokens =
      bytes * config.rollout.tensor_parallel / AnswerTokenBytes(config, model);
  const int64_t longest =
      TokensOfPages(kPromptTokens + config.rollout.max_new_tokens);
  const int64_t slots = std::min(config.rollout.slots, kGpuDecodeSlots);
  std::string text = absl::StrFormat("on %s: %.2f GiB, %d tokens: ",
                                     gpu.name,
                                     static_cast<double>(bytes) / kGiB,
                                     tokens);
  if (slots * longest <= tokens) {
    return text + absl::StrFormat("all %d answers at full length", slots);
  }
  return text + absl::StrFormat("%d answers of %d tokens, or %d of %d",
                                slots,
                                tokens / slots,
                                tokens / longest,
                                longest);
}

}  // namespace dapd
