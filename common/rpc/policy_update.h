// What a client pushes to a worker before the worker may do its tasks: the
// weights to serve, and a probe that shows they really are served.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/serialized_adapter.h"

namespace dapd {

struct PolicyUpdate {
  int64_t version = 0;        // optimizer steps taken
  bool is_base = false;       // adapter off; `adapter` is then empty
  SerializedAdapter adapter;  // its digest identifies the weights

  // The probe: log p(probe_ids[i+1] | probe_ids[0..i]) under these weights by
  // the client's own forward pass. A worker whose numbers differ by more than
  // `probe_tolerance` anywhere serves something else and gets no task.
  std::vector<int32_t> probe_ids;     // at least 2
  std::vector<float> probe_logprobs;  // one fewer
  float probe_tolerance = 1e-3F;
};

}  // namespace dapd
