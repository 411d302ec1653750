// RolloutWorker: the compute thread of a rollout worker. It owns the sampler;
// streams hand it requests through a bounded queue and find the answers in
// their outboxes. Several trainer ranks may send more than the queue holds:
// what finds no place is held back with its stream.
//
// Between two decode steps it takes what is queued: a request joins when a slot
// is free; an upload cancels what runs under other weights (answered
// FAILED_PRECONDITION) and switches; the weights that are served already are
// only probed, and nothing is cancelled. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/bounded_queue.h"
#include "common/base/device_watch.h"
#include "common/base/mutex.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/rpc/transfer/served_weights.h"
#include "services/rollout/generation_outbox.h"
#include "services/rollout/sampler.h"

namespace dapd {

// How a request was answered.
struct RolloutReport {
  FinishReason finish_reason = FinishReason::kNone;  // kNone: it failed
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  // From the request's arrival, waiting for a slot included.
  double seconds_to_first_token = 0.0;  // 0 without a token
  double seconds = 0.0;
};

// Called on the compute thread; must not block. Empty functions are skipped.
struct RolloutObserver {
  // After each decode step.
  std::function<void(int64_t new_tokens, double seconds)> on_step;
  // Sequences that decode, those that wait for KV memory included, and requests
  // that wait for a slot.
  std::function<void(int64_t running, int64_t waiting)> on_load;
  // Beside on_load.
  std::function<void(const KvUse& use)> on_kv_use;
  std::function<void(const RolloutReport& report)> on_request;
  std::function<void(const ServedPolicy& policy)> on_policy;
};

// Requests that may wait for a slot of one worker; Submit blocks beyond it.
inline constexpr int64_t kMaxWaitingRequests = 64;

class RolloutWorker {
 public:
  struct Options {
    int64_t max_waiting = kMaxWaitingRequests;
    RolloutObserver observer;
    // Told by a DeviceWatch of decode steps and adapters, on the compute
    // thread, before the requests fail.
    std::function<void(const absl::Status& why)> on_broken;
  };
  RolloutWorker(std::unique_ptr<Sampler> sampler, Options options);
  // Shutdown(0).
  ~RolloutWorker();

  // One request of one stream, to be sampled with `policy`, which must be what
  // is served. The answer comes through `outbox`, where `request_id` must be
  // open. Blocks while max_waiting requests wait, until the stream is dead or
  // the worker shuts down.
  void Submit(uint64_t request_id,
              DecodeRequest request,
              ServedPolicy policy,
              std::shared_ptr<GenerationOutbox> outbox);

  // Drops all requests of a dead stream.
  void CancelStream(std::shared_ptr<GenerationOutbox> outbox);

  // Switches to the upload. Blocks until it is served; gives up, with the
  // switch still under way, once `cancelled` returns true.
  absl::StatusOr<LoadResult> Load(AdapterUpload upload,
                                  const std::function<bool()>& cancelled);

  const ServedWeights& served() const { return served_; }

  // Refuses new requests (UNAVAILABLE), lets running ones end within `grace`,
  // fails the rest, and ends the compute thread. Blocks.
  void Shutdown(absl::Duration grace);

 private:
  using Command = std::function<void()>;
  // One among the max_waiting; left with the last copy.
  using Place = std::shared_ptr<RolloutWorker>;
  struct Sequence {
    uint64_t request_id = 0;
    DecodeRequest request;
    ServedPolicy policy;
    std::shared_ptr<GenerationOutbox> outbox;
    Place place;         // until it has a slot
    SampleTimes times;   // for the timeline, as far as they are known
    absl::Time arrival;  // by SteadyNow
    absl::Duration to_first_token;  // from there
    uint32_t num_tokens = 0;
  };

  // Blocks for a place. Null: the stream is dead, or the worker shuts down.
  Place WaitForPlace(const GenerationOutbox& outbox);
  void LeavePlace();

  // All below run on the compute thread.
  void Run();
  void Admit(Sequence sequence);
  void StartWaiting();
  // The lowest number that none of those that run has.
  uint32_t FreeSlot() const;
  absl::StatusOr<std::vector<SampledToken>> Compute();
  void Step();
  void Cancel(const GenerationOutbox* outbox);
  absl::StatusOr<LoadResult> Switch(const AdapterUpload& upload);
  void Fail(const Sequence& sequence, const absl::Status& error);
  // kNone: it failed.
  void Report(const Sequence& sequence, FinishReason finish_reason) const;
  void FailRunning(const absl::Status& error);
  void FailAll(const absl::Status& error);  // and what waits
  bool idle() const { return running_.empty() && waiting_.empty(); }
  void ReportLoad();

  const Options options_;
  const std::unique_ptr<Sampler> sampler_;
  std::map<uint64_t, Sequence> running_;  // by the sampler's id
  std::deque<Sequence> waiting_;
  uint64_t next_id_ = 1;
  DeviceWatch device_;

  ServedWeights served_;  // the live adapter
  mutable Mutex mutex_;
  CondVar drained_;
  bool is_idle_ ABSL_GUARDED_BY(mutex_) = true;
  // A place is free, or nobody waits for one any more.
  CondVar places_changed_;
  int64_t places_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> draining_ = false;
  BoundedQueue<Command> commands_;
  std::jthread thread_;
};

}  // namespace dapd
