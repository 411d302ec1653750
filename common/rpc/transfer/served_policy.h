// The worker's side of an adapter push: the upload, its result, and the weights
// served since then. Knows neither gRPC nor LibTorch, so that compute files and
// service files can share it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tensor/serialized_adapter.h"
#include "common/terms/weight_set.h"

namespace dapd {

// An adapter from the wire whose digest was checked.
struct AdapterUpload {
  WeightSet set = WeightSet::kLive;  // the set that it becomes
  int64_t version = 0;
  bool is_base = false;  // adapter off; `adapter` is then empty
  SerializedAdapter adapter;
  std::vector<int32_t> probe_ids;
  // Names the update (PolicyUpdate::key); empty: it has no name.
  std::string key;
  // True: `adapter` is empty, since another upload with this key brought it.
  // The worker only probes it, and only if it serves it.
  bool is_served = false;
};

// A worker's report after it switched to an upload.
struct AppliedAdapter {
  int64_t modules_applied = 0;
  // log p(probe_ids[i+1] | probe_ids[0..i]) at temperature 1.
  std::vector<float> probe_logprobs;
};

// The weights that a worker serves.
struct ServedPolicy {
  bool loaded = false;  // false before the first upload
  int64_t version = 0;
  std::string digest;  // empty: the base
  std::string key;     // of the upload that brought it
};

// Returns "version 12 (3f6c0a91d2b4)", or "version 0 (base)" for an empty
// digest.
std::string PolicyName(int64_t version, const std::string& digest);

// A worker's description.
struct WorkerDescription {
  std::string service;  // "rollout" or "teacher"
  std::string layout_digest;
  std::string precision;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;
  int64_t max_in_flight = 1;
  uint64_t max_adapter_bytes = 0;  // a larger upload is refused
  std::string instance;  // random name of this process; empty: not told
  // The name of the further teacher that it serves, and its TeacherDigest
  // (base_digest.h); empty: it serves the student's own model.
  std::string teacher;
  std::string teacher_digest;
  // The sets that an upload may become; an upload that names none becomes the
  // first.
  std::vector<WeightSet> weight_sets = {WeightSet::kLive};
};

}  // namespace dapd
