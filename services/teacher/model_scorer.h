// The real Scorer: the decoder over a model folder.
#pragma once

#include <cstdint>
#include <memory>

#include "common/config/config.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/scoring_shape.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"
#include "services/teacher/scorer.h"

namespace dapd {

// The sizes in which a scorer computes.
struct ScoringShape {
  int64_t chunk_tokens = 128;
  // The most tokens of a pass, which takes chunks of as many views as wait. A
  // single chunk may exceed it.
  int64_t pass_tokens = kCpuScoringRows;
  // Whether every pass has pass_tokens rows, used or not: on a GPU the bits of
  // a row may depend on the number of rows that are multiplied together.
  bool has_fixed_rows = false;
  int64_t most_together = 1;                // requests
  int64_t head_rows = kCpuScoringHeadRows;  // of logits held at a time
};

// Returns the limits for a device. A CPU packs a layer's weights once per pass,
// which costs as much as about 16 tokens. On a GPU a pass of 4,096 rows keeps
// all multiprocessors busy in every product of a model of at least 1.7B, and
// takes longer than its launches.
ScoringShape ScoringShapeFor(const TeacherSection& config, at::Device device);

// Returns a scorer that keeps at most `prefix_bytes` of chunks. `lora`: the
// shape of the adapters to come, and `own`: an adapter that is part of the base
// (scoring_weights.h). At most one pass is
// launched before the scores of the pass before are awaited; the host waits for
// nothing else. Throws LibTorch's exception if memory is short.
std::unique_ptr<Scorer> MakeModelScorer(
    std::shared_ptr<const ModelWeights> weights,
    const ScoringShape& shape,
    int64_t prefix_bytes,
    const LoraConfig* lora = nullptr,
    std::unique_ptr<const Adapter> own = nullptr);

}  // namespace dapd
