// WorkerPool: serves one list of tasks with all workers of one role.
//
// Discovery: the pool looks all addresses up every resolve_interval
// (address_book.h) and dials the new ones. A worker whose address has vanished
// finishes its tasks and is dropped. If several addresses lead to one process
// (the IPv4 and the IPv6 address of a name, say), the pool uses one address.
// The others are aliases: they appear in no report, and replace the used
// address once it is lost. If a name's IPv4 addresses lead to workers and its
// IPv6 addresses do not, no report shows the IPv6 addresses, and vice versa.
//
// Workers: each worker has a thread and a session. Its stages are
//   connecting -> loading -> ready -> lost -> (back-off) -> connecting ...
// It gets tasks only while it is ready: it has acknowledged the current
// updates, one for each set of weights, and has passed their probes. A new
// update sends every worker back to loading.
//
// Tasks: a worker has at most max_in_flight tasks at a time. The worker names
// this limit, and a task counts until the worker itself has answered it, even
// if another worker was faster. A worker also has at most its share of the
// unanswered tasks, so that the first worker to be ready does not take all of
// them. If a worker is lost, exceeds the time of a task, or does not read a
// message within this time, its tasks return to the front of the list. An idle
// worker also gets a task that another worker has had for several times as long
// as usual (task_durations.h), so that no step waits for one slow worker. The
// first valid answer counts; later answers are duplicates. A worker that
// answers with an error gets no more tasks, may finish its other tasks, and is
// connected to anew, after pauses that grow as long as the errors continue. It
// gets the refused task again only once every other worker has refused it.
//
// Prefixes: a prefix is the part of a task that is known before the task can
// be computed. It goes to the worker that will get the task, the task's home.
// Another worker takes the task only if the home has no room or is lost.
//
// Threads: one mutex guards all state, and a thread wakes only for its own
// work. There are four kinds of conditions:
//   answered_           Next: an answer came, a worker was lost, or the pool
//                       stops. Next also wakes every kPoolTick for its
//                       patience.
//   stopped_            Discovery: the pool stops. Otherwise it wakes by time.
//   watched_            The watchdog: a worker's stage changed, or the pool
//                       stops. It also wakes every kPoolTick.
//   Worker::changed     One worker's own thread, which waits for one of these:
//                       the first update, the end of its back-off, work, or the
//                       end of its stream.
// No wake-up is lost: a thread checks its condition and begins to wait without
// releasing the mutex in between, and every thread that changes a part of the
// condition wakes the waiting thread before it releases the mutex. The parts
// are few, except for work, which depends on the whole state: tasks, prefixes,
// shares, and other workers. Therefore idle_ lists all streams that wait for
// work, and Dispatch, which follows every change of the state, evaluates the
// condition of each stream in idle_. If it holds, Dispatch hands over the work,
// removes the stream from idle_, and wakes its thread. So one task wakes one
// thread. Time alone makes a task a straggler; for this reason the watchdog
// calls Dispatch every kPoolTick.
//
// The pool knows nothing about a role (see WorkerSession). Thread-safe; only
// one thread may call Next and NextWithin.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/base/steady_time.h"
#include "common/rpc/pool/address_book.h"
#include "common/rpc/pool/prefix_board.h"
#include "common/rpc/pool/task_board.h"
#include "common/rpc/pool/task_durations.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "common/rpc/pool/worker_session.h"

namespace dapd {

// How often the watchdog looks at deadlines and stragglers and reports the
// load, and Next looks at its patience.
inline constexpr absl::Duration kPoolTick = absl::Milliseconds(100);

// A worker that has never answered may be away for this long before a warning:
// all processes of a run start at the same time.
inline constexpr absl::Duration kStartPatience = absl::Seconds(30);

template <typename Task, typename Result>
class WorkerPool {
 public:
  using Session = WorkerSession<Task, Result>;
  using SessionFactory =
      std::function<std::unique_ptr<Session>(const std::string& endpoint)>;

  // Starts to look for workers. The workers' threads call `factory`.
  WorkerPool(WorkerPoolOptions options, SessionFactory factory)
      : options_(std::move(options)),
        factory_(std::move(factory)),
        board_(options_.max_attempts),
        durations_(options_.hedge),
        patience_start_(SteadyNow()),
        discovery_([this] { Discover(); }),
        watchdog_([this] { WatchDeadlines(); }) {}
  ~WorkerPool() { Shutdown(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // From now on, workers must serve all of these updates. Tasks in flight are
  // computed again. An update that a worker has acknowledged is not sent to it
  // again. Does not block.
  void SetUpdates(PolicyUpdates updates);
  // Neither blocks nor fails.
  void Submit(Task task);
  // Announces the prefix of a task that will be submitted under the same id;
  // replaces an earlier prefix. Neither blocks nor fails.
  void SubmitPrefix(Task partial);
  // Says that the task of this prefix will not be submitted.
  void WithdrawPrefix(uint64_t id);
  // Returns the next answer, or nothing if none comes within `timeout`. Ends
  // with
  //   UNAVAILABLE          no usable worker for peer_timeout; names each worker
  //                        and its last error (a later call may succeed)
  //   FAILED_PRECONDITION  every worker found serves something else (another
  //                        model, precision, or weights by its probe), or
  //                        nothing was submitted
  //   CANCELLED            Shutdown was called
  //   another code         no retry can mend this task; the message names it
  absl::StatusOr<std::optional<Result>> NextWithin(absl::Duration timeout);
  // Calls NextWithin without a time limit.
  absl::StatusOr<Result> Next();

  std::vector<WorkerState> Workers() const;
  // Ends every wait, cancels every call, joins all threads. Does not wait for
  // a name service that hangs.
  void Shutdown();

 private:
  // A message that a worker's thread has to write.
  struct Work {
    std::shared_ptr<const Task> task;  // null: news of a prefix
    std::optional<typename PrefixBoard<Task>::News> prefix;
    bool is_hedge = false;  // another worker has the task, too
  };

  struct Worker {
    int64_t number = 0;
    WorkerState state;
    std::set<std::string> names;     // that lead to its address
    int64_t capacity = 0;            // its max_in_flight; 0: never connected
    std::string instance;            // of the process that its session led to
    std::string alias_of;            // the used address; empty: it is its own
    std::string remark;              // logged last; only its thread reads this
    std::string told_error;          // the loss that was logged last
    absl::Time since = SteadyNow();  // when discovery found it
    bool wanted = true;              // its address is still named
    bool refusing = false;           // it gets no more tasks in this session
    bool unfit = false;              // it is up, but not what this run needs
    // By task id: the tasks that were given to it on this stream and that it
    // has not answered itself, with their deadlines.
    std::map<uint64_t, absl::Time> unanswered;
    // Why the watchdog cancelled its session; OK: it did not.
    absl::Status timed_out;
    // The time by which the message that its thread writes must have been read.
    absl::Time write_deadline = absl::InfiniteFuture();
    bool done = false;  // its thread needs nothing any more
    std::shared_ptr<Session> session;
    CondVar changed;  // only its thread waits here
    std::jthread thread;
  };

  // One stream under the same updates. The worker's thread writes to it; a
  // receiver reads from it.
  struct Stream {
    Worker* worker;
    std::shared_ptr<const PolicyUpdates> updates;
    bool ended = false;                       // nothing more will arrive
    absl::Status refusal = absl::OkStatus();  // the first error answer
    bool is_idle = false;                     // it is in idle_
    std::optional<Work> work = std::nullopt;  // from Dispatch
  };

  // The state of the pool at the time of a Dispatch.
  struct Moment {
    absl::Time now;
    absl::Time straggles_since;  // a task that was taken before is a straggler
    int64_t capacity = 0;        // of all usable workers
  };

  // Discovery and deadlines.
  void Discover();
  void Apply(const AddressBook::Entries& entries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchDeadlines();
  // Returns OK if `worker` has met all its deadlines so far.
  absl::Status Overdue(const Worker& worker, absl::Time now) const;

  // The life of a worker's thread, from a connection to its loss.
  void RunWorker(Worker* worker);
  void WaitForRetry(Worker* worker, absl::Duration pause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RunSession(Worker* worker, Backoff* backoff);
  absl::Status TakeIn(Worker* worker, const WorkerGreeting& greeting);
  std::shared_ptr<const PolicyUpdates> WaitForUpdates(Worker* worker);
  absl::Status LoadAll(Session* session,
                       const PolicyUpdates& updates,
                       PolicyUpdates* loaded);
  absl::Status RunStream(Worker* worker,
                         Session* session,
                         std::shared_ptr<const PolicyUpdates> updates);
  // Returns the next message to write; nothing once the stream is to be closed.
  std::optional<Work> WaitForWork(Stream* stream);
  static bool Write(Session* session, const Work& work);
  void Accept(Stream* stream, TaskAnswer<Result> answer);
  void Lose(Worker* worker, absl::Status why);

  // The distribution of work.
  void Dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the stream's thread has to close it.
  bool IsOver(const Stream& stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Work> FindWork(Worker* worker, const Moment& moment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const Task> TakeTask(const Worker& worker,
                                       const Moment& moment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayTake(const Worker& worker, uint64_t id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsSending(const Worker& worker);
  static bool IsUsable(const Worker& worker);
  static bool HasRoom(const Worker& worker);
  std::set<int64_t> WithRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t UsableCapacity() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Reports.
  void SetStage(Worker* worker, WorkerStage stage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsAlias(const Worker& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool LeadsTo(const Worker& worker, const std::string& instance);
  bool IsUnused(const Worker& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NothingUsable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PoolLoad Load() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Observe(TaskOutcome outcome, int64_t times = 1) const;

  const WorkerPoolOptions options_;
  const SessionFactory factory_;
  mutable Mutex mutex_;
  CondVar answered_;
  CondVar stopped_;
  CondVar watched_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // A worker's stage has changed since the watchdog last looked.
  bool is_restaged_ ABSL_GUARDED_BY(mutex_) = false;
  TaskBoard<Task, Result> board_ ABSL_GUARDED_BY(mutex_);
  PrefixBoard<Task> prefix_board_ ABSL_GUARDED_BY(mutex_);
  TaskDurations durations_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const PolicyUpdates> updates_ ABSL_GUARDED_BY(mutex_);
  // The streams that wait for work, ordered by when they began to wait.
  std::list<Stream*> idle_ ABSL_GUARDED_BY(mutex_);
  // peer_timeout counts from here while no worker is ready.
  absl::Time patience_start_ ABSL_GUARDED_BY(mutex_);
  int64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::unique_ptr<Worker>> workers_
      ABSL_GUARDED_BY(mutex_);  // by endpoint
  // Names that led to a worker; true: at an IPv6 address.
  std::set<std::pair<std::string, bool>> found_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> resolve_errors_ ABSL_GUARDED_BY(mutex_);
  std::jthread discovery_;
  std::jthread watchdog_;
};

}  // namespace dapd

#include "common/rpc/pool/worker_pool_impl.h"
