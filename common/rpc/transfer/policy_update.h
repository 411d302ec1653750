// What a client pushes to a worker before the worker may do its tasks: the
// weights to serve, and a probe that shows they really are served.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/rpc/transfer/chunk_checksums.h"
#include "common/rpc/transfer/update_progress.h"
#include "common/tensor/serialized_adapter.h"
#include "common/terms/weight_set.h"

namespace dapd {

// By how much two computations of a probe under the same weights may differ.
struct ProbeTolerance {
  float token = 1e-3F;             // of any one token
  float root_mean_square = 1e-3F;  // of all tokens together

  bool operator==(const ProbeTolerance&) const = default;
};

struct PolicyUpdate {
  int64_t version = 0;        // optimizer steps taken
  bool is_base = false;       // adapter off; `adapter` is then empty
  SerializedAdapter adapter;  // its digest identifies the weights

  // The probe: log p(probe_ids[i+1] | probe_ids[0..i]) under these weights by
  // the client's own forward pass. A worker whose numbers differ by more than
  // `probe_tolerance` serves something else and gets no task.
  std::vector<int32_t> probe_ids;     // at least 2
  std::vector<float> probe_logprobs;  // one fewer
  ProbeTolerance probe_tolerance;

  // Of an update that is still being written: until it is finished, the bytes
  // of `adapter.tensors` past it, the digest and `probe_logprobs` may change
  // and must not be read. None: all is final.
  std::shared_ptr<const UpdateProgress> progress;

  // Names this update where several clients push it to the same workers, as the
  // ranks of a trainer do: a worker reads it from one of them. Empty: only this
  // client has it.
  std::string key;

  // Of the chunks (chunk_stream.h) of `adapter.tensors`, shared by the streams
  // to all workers. None: each stream computes its own.
  std::shared_ptr<const ChunkChecksums> checksums;

  // Blocks until the first `bytes` of adapter.tensors, or all, are final.
  // ABORTED if they never will be.
  absl::Status WaitFor(uint64_t bytes) const {
    return progress == nullptr ? absl::OkStatus() : progress->WaitFor(bytes);
  }
  absl::Status WaitUntilFinished() const {
    return progress == nullptr ? absl::OkStatus()
                               : progress->WaitUntilFinished();
  }
};

// All that a worker must have acknowledged before it may do tasks: of a rollout
// worker the live policy, of a teacher the sets that the objective reads.
using PolicyUpdates = std::map<WeightSet, std::shared_ptr<const PolicyUpdate>>;

}  // namespace dapd
