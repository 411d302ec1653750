// The real Scorer: the decoder over a model folder.
#pragma once

#include <cstdint>
#include <memory>

#include "common/config/config.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/scoring_shape.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"
#include "services/teacher/scorer.h"

namespace dapd {

// How much a scorer computes at a time.
struct ScoringShape {
  int64_t chunk_tokens = 128;
  // Most tokens of a pass, which takes chunks of as many views as wait; one
  // chunk passes whatever it has.
  int64_t pass_tokens = kCpuScoringRows;
  // Whether every pass has pass_tokens rows, used or not: on a GPU the bits of
  // a row may depend on how many it is multiplied with.
  bool has_fixed_rows = false;
  int64_t most_together = 1;                // requests
  int64_t head_rows = kCpuScoringHeadRows;  // whose logits are held at a time
};

// What suits the device. A CPU packs a layer's weights once a pass, which costs
// as much as some 16 tokens. On a GPU a pass of 4,096 rows keeps all
// multiprocessors busy in every product of a model of 1.7B or more, and takes
// longer than its launches.
ScoringShape ScoringShapeFor(const TeacherSection& config, at::Device device);

// A scorer that keeps at most `prefix_bytes` of chunks. `lora`: what the
// adapters to come look like (scoring_weights.h). At most one pass is launched
// before the scores of the one before are waited for, which is all that the
// host waits for. Throws for want of memory, as LibTorch does.
std::unique_ptr<Scorer> MakeModelScorer(
    std::shared_ptr<const ModelWeights> weights,
    const ScoringShape& shape,
    int64_t prefix_bytes,
    const LoraConfig* lora = nullptr);

}  // namespace dapd
