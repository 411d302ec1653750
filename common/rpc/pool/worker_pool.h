// WorkerPool: all workers of one role, served from one list of tasks.
//
// Discovery: every resolve_interval the addresses are looked up again, files
// among them read again (address_book.h); a new address is dialled, a vanished
// one finishes what it has and is dropped. Where several lead to one process,
// as an IPv4 and an IPv6 address of one name do, one of them stands for it; the
// others are aliases, of which nobody hears, until that one is lost. If workers
// were found at the IPv4 addresses of a name and none at its IPv6 addresses,
// nobody hears of the latter either; the same the other way round.
// Each worker has a thread and a session, and is
//   connecting -> loading -> ready -> lost -> (back-off) -> connecting ...
// It gets tasks only while ready: it acknowledged the current updates, one for
// each set of weights, and passed their probes. A new update sends all workers
// back to loading.
// Tasks: a worker has at most max_in_flight tasks at a time, which it names
// itself, those included that another one has answered meanwhile, and at most
// its share of the unanswered ones, so that the first worker to be ready does
// not take them all. When it is lost, a task times out, or what is written to
// it is not taken for as long, its tasks go back to the front of the list. A
// worker with nothing else to do also gets a task that another has had for
// several times as long as usual (task_durations.h), so that no step waits for
// one slow worker. The first valid answer counts, later ones are duplicates. A
// worker that answers with an error gets no more tasks, may finish what it has,
// and is connected to anew, after longer and longer pauses for as long as it
// does; it gets that task again only once every other has refused it, too.
//
// Prefixes: what is known of a task before it can be done, its prefix, goes to
// the worker that is to get it, the task's home. Another one takes the task
// only if its home has no room for it, or is lost; then it is told anew.
//
// Nothing here depends on a role: see WorkerSession. Thread-safe; Next and
// NextWithin are meant for one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
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
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/pool/address_book.h"
#include "common/rpc/pool/prefix_board.h"
#include "common/rpc/pool/task_board.h"
#include "common/rpc/pool/task_durations.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "common/rpc/pool/worker_session.h"

namespace dapd {

// How often a waiting thread of the pool looks at the time: the watchdog at
// deadlines, Next at its patience, a worker's sender at stragglers.
inline constexpr absl::Duration kPoolTick = absl::Milliseconds(100);

// How long a worker that has not been there yet may stay away before a warning:
// all of a run are started at the same time.
inline constexpr absl::Duration kStartPatience = absl::Seconds(30);

template <typename Task, typename Result>
class WorkerPool {
 public:
  using Session = WorkerSession<Task, Result>;
  using SessionFactory =
      std::function<std::unique_ptr<Session>(const std::string& endpoint)>;

  // Starts to look for workers. `factory` is called from many threads.
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

  // What workers must serve from now on, all of it. Tasks in flight are done
  // again; what a worker has acknowledged already is not sent again.
  void SetUpdates(PolicyUpdates updates) {
    MutexLock lock(&mutex_);
    updates_ = std::make_shared<const PolicyUpdates>(std::move(updates));
    for (const auto& [endpoint, worker] : workers_) worker->unfit = false;
    patience_start_ = SteadyNow();
    changed_.NotifyAll();
  }
  // Neither blocks nor fails.
  void Submit(Task task) {
    MutexLock lock(&mutex_);
    if (board_.outstanding() == 0) patience_start_ = SteadyNow();
    prefix_board_.Complete(task.id);
    board_.Add(std::move(task));
    changed_.NotifyAll();
  }
  // The prefix of a task that will be submitted under the same id, in place of
  // an earlier one. Neither blocks nor fails.
  void SubmitPrefix(Task partial) {
    MutexLock lock(&mutex_);
    prefix_board_.Tell(std::move(partial));
    changed_.NotifyAll();
  }
  // The task of that prefix will not come.
  void WithdrawPrefix(uint64_t id) {
    MutexLock lock(&mutex_);
    prefix_board_.Withdraw(id);
    changed_.NotifyAll();
  }
  // The next answer, or nothing if none comes within `timeout`; see
  // RolloutClient::NextWithin for how it ends.
  absl::StatusOr<std::optional<Result>> NextWithin(absl::Duration timeout);
  absl::StatusOr<Result> Next();

  std::vector<WorkerState> Workers() const;
  // Ends every wait, cancels every call, joins all threads. Does not wait for
  // a name service that hangs.
  void Shutdown();

 private:
  struct Worker {
    int64_t number = 0;
    WorkerState state;
    // That stand for its address.
    std::set<std::string> names;
    int64_t capacity = 0;    // tasks it takes at a time; 0: never connected
    std::string instance;    // of the process that its session led to
    std::string alias_of;    // the address that stands for it; empty: its own
    std::string remark;      // that was logged last; its thread's
    std::string told_error;  // the loss that was logged last
    absl::Time since = SteadyNow();  // it is known since
    bool wanted = true;              // its address is still named
    bool refusing = false;           // it gets no more tasks from this session
    bool unfit = false;              // it is up, but not what this run needs
    // What it was given on this stream and has not answered itself, whoever
    // else has, and by when it must: a duplicate keeps it busy all the same.
    std::map<uint64_t, absl::Time> unanswered;
    // Why the watchdog cancelled its session; none: it did not.
    absl::Status timed_out;
    // By when what its sender writes must have been taken.
    absl::Time write_deadline = absl::InfiniteFuture();
    bool done = false;  // its thread needs nothing any more
    std::shared_ptr<Session> session;
    std::jthread thread;
  };
  // One stream under the same updates: what its sender and receiver share.
  struct Stream {
    std::shared_ptr<const PolicyUpdates> updates;
    bool ended = false;   // nothing more can be received
    bool hedged = false;  // the task just taken is with another worker, too
    absl::Status refusal =
        absl::OkStatus();  // the first error answer; then nothing is sent
  };

  // What a worker's sender has to write next: a task, or news of a prefix.
  struct Work {
    std::shared_ptr<const Task> task;
    std::optional<typename PrefixBoard<Task>::News> prefix;
  };

  void Discover();
  void Apply(const AddressBook::Entries& entries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchDeadlines();
  void RunWorker(Worker* worker);
  absl::Status RunSession(Worker* worker, Backoff* backoff);
  absl::Status RunStream(Worker* worker,
                         Session* session,
                         std::shared_ptr<const PolicyUpdates> updates);
  absl::Status TakeIn(Worker* worker, const WorkerGreeting& greeting);
  bool IsAlias(const Worker& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool LeadsTo(const Worker& worker, const std::string& instance);
  bool IsUnused(const Worker& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const PolicyUpdates> WaitForUpdates(Worker* worker);
  absl::Status LoadAll(Session* session,
                       const PolicyUpdates& updates,
                       PolicyUpdates* loaded);
  std::optional<Work> WaitForWork(Worker* worker, Stream* stream);
  // What is overdue of a worker; OK: nothing.
  absl::Status Overdue(const Worker& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const Task> TakeTask(Worker* worker, Stream* stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayTake(const Worker& worker, uint64_t id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsUsable(const Worker& worker);
  static bool HasRoom(const Worker& worker);
  std::set<int64_t> WithRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Share(const Worker& worker, int64_t tasks) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Accept(Worker* worker, Stream* stream, TaskAnswer<Result> answer);
  void SetStage(Worker* worker, WorkerStage stage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lose(Worker* worker, absl::Status why);
  absl::Status NothingUsable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PoolLoad Load() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Observe(TaskOutcome outcome, int64_t times = 1) const;

  const WorkerPoolOptions options_;
  const SessionFactory factory_;
  mutable Mutex mutex_;
  CondVar changed_;  // any of the below
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  TaskBoard<Task, Result> board_ ABSL_GUARDED_BY(mutex_);
  PrefixBoard<Task> prefix_board_ ABSL_GUARDED_BY(mutex_);
  TaskDurations durations_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const PolicyUpdates> updates_ ABSL_GUARDED_BY(mutex_);
  // peer_timeout counts from here while no worker is ready.
  absl::Time patience_start_ ABSL_GUARDED_BY(mutex_);
  int64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::unique_ptr<Worker>> workers_
      ABSL_GUARDED_BY(mutex_);  // by endpoint
  // Names, and whether it was at their IPv6 addresses that a worker was found.
  std::set<std::pair<std::string, bool>> found_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> resolve_errors_ ABSL_GUARDED_BY(mutex_);
  std::jthread discovery_;
  std::jthread watchdog_;
};

}  // namespace dapd

#include "common/rpc/pool/worker_pool_impl.h"
#include "common/rpc/pool/worker_pool_tasks_impl.h"
#include "common/rpc/pool/worker_pool_thread_impl.h"
