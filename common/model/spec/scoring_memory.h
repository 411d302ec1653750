// What scoring takes of a teacher's memory beside the program, the base, the
// adapters and the prefixes it keeps: a part of the plan (memory_plan.h). A
// pass is as large as scoring_shape.h says.
#pragma once

#include <vector>

#include "common/config/config.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// For a GPU where PlansForGpu (pass_memory.h). `prefix_caches`: bytes of the
// prefixes that are kept (teacher.prefix_memory_mib). Views under way live
// there too, so that only what they take beyond it is an item.
std::vector<MemoryItem> ScoringItems(const Config& config,
                                     const ModelConfig& model,
                                     double prefix_caches);

}  // namespace dapd
