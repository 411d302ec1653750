// The line of `dapd check` on the memory of the answers.
#pragma once

#include <string>

#include "common/config/config.h"
#include "common/gpus/gpu_report.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Returns how many answers a rollout worker holds at a time, by its own rule
// (common/model/spec/answer_memory.h), on a GPU as PassLimitsText
// (pass_limits_text.h) chooses it: "on a GPU of 80 GiB: 66.43 GiB,
// 483712 tokens: 32 answers of 15116 tokens, or 12 of 39424". Returns nothing
// for a plan for the CPU.
std::string AnswerMemoryText(const Config& config,
                             const ModelConfig& model,
                             double gpu_gib,
                             const GpuReport& here);

}  // namespace dapd
