// RolloutWorker: the compute thread of a rollout worker. It owns the sampler.
// Streams send it requests through a bounded queue and receive answers in their
// outboxes. Several trainer ranks may send more requests than the queue holds:
// a stream waits until its request has a place.
//
// Between two decode steps it takes from the queue. A request starts when a
// slot is free. An upload cancels the sequences that run under other weights
// (they are answered with FAILED_PRECONDITION) and switches; an upload of the
// served weights is only probed, and cancels nothing. Thread-safe.
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
  // The time from the arrival of the request, including the wait for a slot.
  double seconds_to_first_token = 0.0;  // 0 without a token
  double seconds = 0.0;
};

// The compute thread calls these functions; they must not block. Empty
// functions are skipped.
struct RolloutObserver {
  // Called after each decode step.
  std::function<void(int64_t new_tokens, double seconds)> on_step;
  // Sequences that decode or wait for KV memory, and requests that wait for a
  // slot.
  std::function<void(int64_t running, int64_t waiting)> on_load;
  // Called together with on_load.
  std::function<void(const KvUse& use)> on_kv_use;
  std::function<void(const RolloutReport& report)> on_request;
  std::function<void(const ServedPolicy& policy)> on_policy;
};

// Requests of one worker that may wait for a slot; Submit blocks while all
// places are taken.
inline constexpr int64_t kMaxWaitingRequests = 64;

class RolloutWorker {
 public:
  struct Options {
    int64_t max_waiting = kMaxWaitingRequests;
    RolloutObserver observer;
    // A DeviceWatch of decode steps and adapters calls it on the compute
    // thread, before the requests fail.
    std::function<void(const absl::Status& why)> on_broken;
  };
  RolloutWorker(std::unique_ptr<Sampler> sampler, Options options);
  // Shutdown(0).
  ~RolloutWorker();

  // Samples one request of one stream with `policy`, which must be served. The
  // answer comes through `outbox`, where `request_id` must be open. Blocks
  // while max_waiting requests wait, until the stream is dead or the worker
  // shuts down.
  void Submit(uint64_t request_id,
              DecodeRequest request,
              ServedPolicy policy,
              std::shared_ptr<GenerationOutbox> outbox);

  // Drops all requests of a dead stream.
  void CancelStream(std::shared_ptr<GenerationOutbox> outbox);

  // Switches to the upload and blocks until it is served. Returns early once
  // `cancelled` returns true, although the worker will still switch.
  absl::StatusOr<LoadResult> Load(AdapterUpload upload,
                                  const std::function<bool()>& cancelled);

  const ServedWeights& served() const { return served_; }

  // Refuses new requests (UNAVAILABLE), lets running requests end within
  // `grace`, fails the rest, and ends the compute thread. Blocks.
  void Shutdown(absl::Duration grace);

 private:
  using Command = std::function<void()>;
  // One of the max_waiting places; the last copy frees it.
  using Place = std::shared_ptr<RolloutWorker>;
  struct Sequence {
    uint64_t request_id = 0;
    DecodeRequest request;
    ServedPolicy policy;
    std::shared_ptr<GenerationOutbox> outbox;
    Place place;                    // until it has a slot
    SampleTimes times;              // the known times, for the timeline
    absl::Time arrival;             // by SteadyNow
    absl::Duration to_first_token;  // since `arrival`
    uint32_t num_tokens = 0;
    uint32_t num_scored = 0;  // tokens of the prompt
  };

  // Blocks for a place. Returns null if the stream is dead or the worker shuts
  // down.
  Place WaitForPlace(const GenerationOutbox& outbox);
  void LeavePlace();

  // The compute thread calls everything below.
  void Run();
  void Admit(Sequence sequence);
  void StartWaiting();
  // Returns the lowest number that no running sequence has.
  uint32_t FreeSlot() const;
  absl::StatusOr<std::vector<SampledToken>> Compute();
  void Step();
  void Cancel(const GenerationOutbox* outbox);
  absl::StatusOr<LoadResult> Switch(const AdapterUpload& upload);
  void Fail(const Sequence& sequence, const absl::Status& error);
  // kNone: it failed.
  void Report(const Sequence& sequence, FinishReason finish_reason) const;
  void FailRunning(const absl::Status& error);
  void FailAll(const absl::Status& error);  // waiting requests, too
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
  // A place is free, or a waiting caller has to give up.
  CondVar places_changed_;
  int64_t places_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> draining_ = false;
  BoundedQueue<Command> commands_;
  std::jthread thread_;
};

}  // namespace dapd
