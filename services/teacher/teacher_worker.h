// TeacherWorker: the compute thread of a teacher worker. It owns the scorer,
// and processes uploads, and the requests of a set of weights, in their order
// of arrival. It scores several requests together if this is faster
// (Scorer::most_together). While no request waits, it computes announced
// prefixes, pass by pass.
//
// Scores go to the stream's outbox view by view. The outbox is small, so a slow
// client slows the compute thread down and does not fill the memory. A dead
// client closes its outbox, and its requests are skipped. A client that lives
// and reads nothing is waited for until the grace of Shutdown has passed.
// Thread-safe.
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
  int64_t policy_version = 0;  // the set's version; 0 for the base
  std::string adapter_digest;  // the set's digest; empty for the base
  ScoreInput input;
};

struct ScoreFinished {
  ServedPolicy policy;           // the weights that scored it
  double compute_seconds = 0.0;  // since the request arrived
  double ahead_seconds = 0.0;    // before the request arrived
  ScoreWork work;
  TimeSpan scored;              // the span of compute_seconds
  std::vector<TimeSpan> ahead;  // the spans of ahead_seconds
};

// The scores of a view, or the end of a request, for a stream's writer.
struct TeacherEvent {
  uint64_t request_id = 0;
  std::variant<ViewScores, ScoreFinished, absl::Status> content;
};
using TeacherOutbox = BoundedQueue<TeacherEvent>;

// The compute thread calls these functions; they must not block. Empty
// functions are skipped.
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

// Requests and uploads that may wait; Submit blocks while the queue is full.
inline constexpr int64_t kMaxQueuedCommands = 64;

class TeacherWorker {
 public:
  // `on_broken`: a DeviceWatch of requests, chunks and uploads calls it on the
  // compute thread, before the request fails.
  TeacherWorker(std::unique_ptr<Scorer> scorer,
                TeacherObserver observer,
                std::function<void(const absl::Status& why)> on_broken = {});
  // Shutdown(0).
  ~TeacherWorker();

  // Answers every request through `outbox`, unless it is closed. Blocks while
  // the queue is full.
  void Submit(TeacherRequest request, std::shared_ptr<TeacherOutbox> outbox);

  // Announces a prefix of a request of the stream with this `outbox`. It has no
  // answer, and is dropped if its weights are not served. Blocks while the
  // queue is full.
  void SubmitPrefix(PrefixUpdate update, std::shared_ptr<TeacherOutbox> outbox);

  // Forgets the prefixes of the stream of `outbox`, which has ended.
  void CloseStream(std::shared_ptr<TeacherOutbox> outbox);

  // Makes the upload its set of weights and blocks until it is served. Returns
  // early once `cancelled` returns true, although the worker will still switch.
  absl::StatusOr<LoadResult> Load(AdapterUpload upload,
                                  const std::function<bool()>& cancelled);

  const ServedWeights& served() const { return served_; }

  // Refuses new requests (UNAVAILABLE), processes queued requests until `grace`
  // has passed, fails the rest, and ends the compute thread. Blocks while the
  // current request is being computed; answers for which a client then has no
  // room are dropped, and its outbox is closed.
  void Shutdown(absl::Duration grace);

 private:
  using Command = std::function<void()>;

  // The compute thread calls everything below.
  void Run();
  void ComputeAhead();
  // A request whose turn has come.
  struct Turn {
    std::shared_ptr<const TeacherRequest> request;
    std::shared_ptr<TeacherOutbox> outbox;
    AheadWork ahead;  // keeps its chunks until the turn is done
  };
  // Returns the first set that has as many requests in turns_ as should be
  // scored together.
  std::optional<WeightSet> FullSet() const;
  // Returns the set of the next requests: a full set goes before the set of the
  // oldest request, but not twice.
  WeightSet NextSet();
  // The results of several turns that were scored together.
  struct Scored {
    std::vector<absl::StatusOr<ScoreWork>> outcomes;  // of each turn
    TimeSpan span;         // by the machine's clock, for the timeline
    double seconds = 0.0;  // without the clients' time
  };
  // Scores requests of turns_ together. All belong to the next set, because a
  // pass over the model has the weights of one set.
  void TakeTurns();
  // Takes requests of the next set from turns_, as many as should be scored
  // together. Drops requests that nobody waits for, and refuses invalid ones.
  std::vector<Turn> TakeNextTurns();
  Scored ScoreTurns(const std::vector<Turn>& turns);
  // Returns false if the client wants no further views. Adds the time that the
  // client took.
  bool SendScores(const Turn& turn,
                  ViewScores scores,
                  absl::Duration* waiting) const;
  // Ends each turn with its outcome, and a share of the time in proportion to
  // its tokens.
  void ReportTurns(const std::vector<Turn>& turns, const Scored& scored);
  absl::Status CheckTurn(const TeacherRequest& request);
  // Returns whether Shutdown's grace has passed.
  bool IsOverdue() const;
  // Waits for room. Returns false if the outbox is closed, by its stream, or
  // because it is still full when IsOverdue.
  bool Deliver(TeacherEvent event, TeacherOutbox& outbox) const;
  // Reports the end of a request.
  void End(const Turn& turn, std::variant<ScoreFinished, absl::Status> end);
  absl::StatusOr<LoadResult> Switch(const AdapterUpload& upload);

  const TeacherObserver observer_;
  const std::unique_ptr<Scorer> scorer_;
  DeviceWatch device_;
  PrefixDesk desk_;
  std::vector<Turn> turns_;   // in their order of arrival
  bool passed_over_ = false;  // a full set went before the first of turns_
  ServedWeights served_;
  mutable Mutex mutex_;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::atomic<bool> draining_ = false;
  BoundedQueue<Command> commands_;
  std::jthread thread_;
};

}  // namespace dapd
