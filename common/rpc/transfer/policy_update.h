// PolicyUpdate: everything that a client sends to a worker before the worker
// may take tasks: the weights to serve, and a probe that shows that the worker
// really serves them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/base/mutex.h"
#include "common/tensor/serialized_adapter.h"
#include "common/terms/weight_set.h"

namespace dapd {

// UpdateProgress: how much of a PolicyUpdate its producer has written, so that
// sending can start while the optimizer still computes later layers. A reader
// that has waited sees everything that the producer wrote before Advance or
// Finish. Thread-safe, with one producer and any number of readers.
class UpdateProgress {
 public:
  // Says that the first `bytes` of the adapter's tensors are final. Never
  // decreases.
  void Advance(uint64_t bytes);
  // Says that everything is final, including the digest and the probe.
  void Finish();
  // Says that the rest will never come. Has no effect after Finish.
  void Abandon();

  // Blocks until the first `bytes` are final. ABORTED after Abandon.
  absl::Status WaitFor(uint64_t bytes) const;
  // Blocks until everything is final. Returns ABORTED after Abandon.
  absl::Status WaitUntilFinished() const;

 private:
  absl::Status End() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

// ChunkChecksums: the CRC-32C of every chunk (chunk_stream.h) of a payload that
// several workers receive, computed once for all of them. Thread-safe.
class ChunkChecksums {
 public:
  explicit ChunkChecksums(uint64_t num_chunks) : chunks_(num_chunks) {}

  // Returns the checksum of chunk `index`, whose content is `bytes` and never
  // changes. The first caller computes it; the others wait.
  uint32_t Of(uint64_t index, absl::string_view bytes) const;

 private:
  struct Chunk {
    std::once_flag once;
    uint32_t crc32c = 0;
  };
  mutable std::vector<Chunk> chunks_;
};

// The greatest difference between two computations of a probe under equal
// weights.
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

  // While the update is being written, the bytes of `adapter.tensors` beyond
  // this progress, the digest and `probe_logprobs` may change and must not be
  // read. Null: all is final.
  std::shared_ptr<const UpdateProgress> progress;

  // Names this update if several clients push it to the same workers, like the
  // ranks of a trainer: a worker reads it from one client. Empty: only this
  // client has it.
  std::string key;

  // The checksums of `adapter.tensors`, which the streams to all workers share.
  // Null: each stream computes its own.
  std::shared_ptr<const ChunkChecksums> checksums;

  // Blocks until the first `bytes` of adapter.tensors, or all, are final.
  // Returns ABORTED if they never will be.
  absl::Status WaitFor(uint64_t bytes) const {
    return progress == nullptr ? absl::OkStatus() : progress->WaitFor(bytes);
  }
  absl::Status WaitUntilFinished() const {
    return progress == nullptr ? absl::OkStatus()
                               : progress->WaitUntilFinished();
  }
};

// Every update that a worker must have acknowledged before it may take tasks: a
// rollout worker the live policy, a teacher the sets that the objective reads.
using PolicyUpdates = std::map<WeightSet, std::shared_ptr<const PolicyUpdate>>;

}  // namespace dapd
