// TeacherWorker: the compute thread of a teacher worker. It owns the scorer and
// does the requests of a set of weights, and uploads, in the order they came,
// several requests together where the scorer gains by that
// (Scorer::most_together). While none waits it computes what was told ahead of
// requests, pass by pass.
//
// Scores go to the stream's outbox view by view; the outbox is small, so a slow
// client holds the compute thread back instead of filling the memory. A dead
// one closes its outbox, and its requests are skipped. One that lives and reads
// nothing is waited for until Shutdown's grace has passed. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/bounded_queue.h"
#include "common/base/device_watch.h"
#include "common/base/mutex.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/rpc/transfer/served_weights.h"
#include "services/teacher/prefix_desk.h"
#include "services/teacher/scorer.h"

namespace dapd {

// One request of one stream.
struct TeacherRequest {
  uint64_t request_id = 0;
  int64_t policy_version = 0;  // must be that of the set; 0 for the base
  std::string adapter_digest;  // likewise; empty for the base
  ScoreInput input;
};

struct ScoreFinished {
  ServedPolicy policy;           // that scored it
  double compute_seconds = 0.0;  // since it came
  double ahead_seconds = 0.0;    // before it came
  ScoreWork work;
  TimeSpan scored;              // the time that compute_seconds are of
  std::vector<TimeSpan> ahead;  // and ahead_seconds
};

// What a stream's writer gets: scores of views, then how the request ended.
struct TeacherEvent {
  uint64_t request_id = 0;
  std::variant<ViewScores, ScoreFinished, absl::Status> content;
};
using TeacherOutbox = BoundedQueue<TeacherEvent>;

// Called on the compute thread; must not block. Empty functions are skipped.
struct TeacherObserver {
  // A request was answered: "ok" or "failed".
  std::function<void(const std::string& outcome)> on_request;
  std::function<void(int64_t scored_tokens, double seconds)> on_scored;
  std::function<void(const ScoreWork& work)> on_work;
  // Tokens computed ahead of a request.
  std::function<void(int64_t tokens, double seconds)> on_ahead;
  std::function<void(int64_t requests)> on_open_prefixes;
  std::function<void(uint64_t bytes)> on_payload;
  std::function<void(int64_t waiting)> on_load;
  std::function<void(WeightSet set, const ServedPolicy& policy)> on_policy;
};

// Requests and uploads that may wait; Submit blocks beyond it.
inline constexpr int64_t kMaxQueuedCommands = 64;

class TeacherWorker {
 public:
  // `on_broken`: told by a DeviceWatch of requests, chunks and uploads, on the
  // compute thread, before the request fails.
  TeacherWorker(std::unique_ptr<Scorer> scorer,
                TeacherObserver observer,
                std::function<void(const absl::Status& why)> on_broken = {});
  // Shutdown(0).
  ~TeacherWorker();

  // Every request is answered through `outbox`, unless that is closed. Blocks
  // while the queue is full.
  void Submit(TeacherRequest request, std::shared_ptr<TeacherOutbox> outbox);

  // What is known ahead of a request of the stream that `outbox` belongs to.
  // Not answered; left out if its weights are not what is served. Blocks while
  // the queue is full.
  void SubmitPrefix(PrefixUpdate update, std::shared_ptr<TeacherOutbox> outbox);

  // The stream of `outbox` has ended: forgets the prefixes that came on it.
  void CloseStream(std::shared_ptr<TeacherOutbox> outbox);

  // Makes the upload its set of weights. Blocks until it is served; gives up,
  // with the switch still under way, once `cancelled` returns true.
  absl::StatusOr<LoadResult> Load(AdapterUpload upload,
                                  const std::function<bool()>& cancelled);

  const ServedWeights& served() const { return served_; }

  // Refuses new requests (UNAVAILABLE), does the queued ones until `grace` has
  // passed, fails the rest, and ends the compute thread. Blocks for as long as
  // the request being computed takes; what a client has no room for by then is
  // dropped, and its outbox closed.
  void Shutdown(absl::Duration grace);

 private:
  using Command = std::function<void()>;

  // All below run on the compute thread.
  void Run();
  void ComputeAhead();
  // A request whose turn has come.
  struct Turn {
    std::shared_ptr<const TeacherRequest> request;
    std::shared_ptr<TeacherOutbox> outbox;
    AheadWork ahead;  // kept until it is done, which finds it in the scorer
  };
  // The first set of which turns_ has as many as are worth while to score
  // together.
  std::optional<WeightSet> FullSet() const;
  // The set whose turn it is: one that is full, before the oldest request's,
  // but not twice.
  WeightSet NextSet();
  // What several turns came to that were scored together.
  struct Scored {
    std::vector<absl::StatusOr<ScoreWork>> outcomes;  // of each turn
    TimeSpan span;         // by the machine's clock, for the timeline
    double seconds = 0.0;  // without the time that clients took
  };
  // Scores requests of turns_ together, of the next set: a pass over the model
  // has the weights of one.
  void TakeTurns();
  // As many of turns_ as are worth while to score together, of the next set;
  // without those that nobody waits for any more or that it refuses.
  std::vector<Turn> TakeNextTurns();
  Scored ScoreTurns(const std::vector<Turn>& turns);
  // False: the client wants no more. Adds the time that the client took.
  bool SendScores(const Turn& turn,
                  ViewScores scores,
                  absl::Duration* waiting) const;
  // Ends each with its outcome and as much of the time as it has of the tokens.
  void ReportTurns(const std::vector<Turn>& turns, const Scored& scored);
  absl::Status CheckTurn(const TeacherRequest& request);
  // Shutdown's grace has passed.
  bool IsOverdue() const;
  // Waits for room. False: the outbox is closed, by its stream or because it is
  // still full when IsOverdue.
  bool Deliver(TeacherEvent event, TeacherOutbox& outbox) const;
  // Tells how a request ended.
  void End(const Turn& turn, std::variant<ScoreFinished, absl::Status> end);
  absl::StatusOr<LoadResult> Switch(const AdapterUpload& upload);

  const TeacherObserver observer_;
  const std::unique_ptr<Scorer> scorer_;
  DeviceWatch device_;
  PrefixDesk desk_;
  std::vector<Turn> turns_;   // in the order in which they came
  bool passed_over_ = false;  // turns_'s first, by a full set
  ServedWeights served_;
  mutable Mutex mutex_;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::atomic<bool> draining_ = false;
  BoundedQueue<Command> commands_;
  std::jthread thread_;
};

}  // namespace dapd
