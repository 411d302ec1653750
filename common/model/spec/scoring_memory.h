// The memory that scoring takes of a teacher beside the program, the base, the
// adapters and the kept prefixes: a part of the plan (memory_plan.h).
// scoring_shape.h has the size of a pass.
#pragma once

#include <vector>

#include "common/config/config.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Plans for a GPU if PlansForGpu (pass_memory.h). `prefix_caches`: bytes of the
// kept prefixes (teacher.prefix_memory_mib). Views under way take that memory,
// too, so that only their memory beyond it is an item.
std::vector<MemoryItem> ScoringItems(const Config& config,
                                     const ModelConfig& model,
                                     double prefix_caches);

}  // namespace dapd
