// ScoreTask and ScoreResult: a request to a teacher worker, and the answer.
// Needs neither gRPC nor LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/tensor/host_tensor.h"
#include "common/terms/payload.h"
#include "common/terms/view.h"
#include "common/terms/weight_set.h"

namespace dapd {

struct ScoreTask {
  uint64_t id = 0;      // unique among the tasks without a result
  std::string teacher;  // a further teacher; empty: the student's own model
  WeightSet weights = WeightSet::kBase;
  Payload payload = Payload::kHiddenStates;
  int64_t top_k = 0;         // of a top_k payload
  double temperature = 1.0;  // of a top_k payload
  NamedViews views;          // scored_from is at least 1 in each
};

struct ScoreResult {
  uint64_t id = 0;
  // By view, then by tensor name: "hidden" [n, hidden] in the base's
  // dtype, or "logits" [n, vocab] float32, or "ids" [n, k] int32 with
  // "logprobs" [n, k] float32. Shapes and dtypes are checked on arrival.
  std::map<ViewName, std::map<std::string, HostTensor>> views;
  double compute_seconds = 0.0;  // on the worker, since the task arrived
  double ahead_seconds = 0.0;    // on the worker, earlier, for its prefixes
  int64_t computed_tokens = 0;   // of the views, since the task arrived
  int64_t reused_tokens = 0;     // of the views, earlier
  uint64_t payload_bytes = 0;
};

}  // namespace dapd
