// The bodies of WorkerPool, but for a worker's thread
// (worker_pool_thread_impl.h) and the choice of its tasks
// (worker_pool_tasks_impl.h): what the pool is asked, which workers there are,
// and what becomes of them. Included by worker_pool.h only.
#pragma once

#include "common/rpc/pool/worker_pool.h"

namespace dapd {

template <typename Task, typename Result>
absl::StatusOr<Result> WorkerPool<Task, Result>::Next() {
  ASSIGN_OR_RETURN(std::optional<Result> result,
                   NextWithin(absl::InfiniteDuration()));
  return *std::move(result);
}

template <typename Task, typename Result>
absl::StatusOr<std::optional<Result>> WorkerPool<Task, Result>::NextWithin(
    absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(&mutex_);
  while (true) {
    if (board_.has_answer()) {
      absl::StatusOr<Result> answer = board_.PopAnswer();
      // What the stop itself has cut off fails, too.
      if (answer.ok()) return std::optional<Result>(*std::move(answer));
      if (!stopping_) return answer.status();
    }
    if (stopping_) {
      return absl::CancelledError(absl::StrCat(
          "stopped while waiting for ", options_.role, " workers"));
    }
    if (board_.outstanding() == 0 || updates_ == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("no ",
                       options_.role,
                       " task was submitted, or no policy was set: there is "
                       "nothing to wait for"));
    }
    RETURN_IF_ERROR(NothingUsable());
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    changed_.WaitFor(&mutex_, std::min(kPoolTick, left));
  }
}

template <typename Task, typename Result>
std::vector<WorkerState> WorkerPool<Task, Result>::Workers() const {
  MutexLock lock(&mutex_);
  std::vector<WorkerState> states;
  for (const auto& [endpoint, worker] : workers_) {
    if (IsUnused(*worker)) continue;
    states.push_back(worker->state);
    states.back().in_flight = board_.InFlight(worker->number);
  }
  return states;
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Shutdown() {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (const auto& [endpoint, worker] : workers_) {
      if (worker->session != nullptr) sessions.push_back(worker->session);
    }
    changed_.NotifyAll();
  }
  for (const auto& session : sessions) session->Cancel();
  // Discovery first: only it adds workers.
  if (discovery_.joinable()) discovery_.join();
  if (watchdog_.joinable()) watchdog_.join();
  std::map<std::string, std::unique_ptr<Worker>> workers;
  {
    MutexLock lock(&mutex_);
    workers.swap(workers_);
  }
  for (const auto& [endpoint, worker] : workers) worker->thread.join();
}

// --- Discovery and deadlines -------------------------------------------------

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Discover() {
  AddressBook book(options_.addresses, Abandonable(options_.resolver, [this] {
                     MutexLock lock(&mutex_);
                     return stopping_;
                   }));
  while (true) {
    AddressBook::Entries entries = book.LookUp();
    std::vector<std::unique_ptr<Worker>> ended;
    {
      MutexLock lock(&mutex_);
      for (auto& [endpoint, worker] : workers_) {
        if (worker->done) ended.push_back(std::move(worker));
      }
      std::erase_if(workers_,
                    [](const auto& w) { return w.second == nullptr; });
      if (stopping_) return;
      Apply(entries);
      resolve_errors_ = std::move(entries.errors);
      changed_.NotifyAll();
    }
    ended.clear();  // joins, without the lock
    MutexLock lock(&mutex_);
    const absl::Time next = SteadyNow() + options_.resolve_interval;
    while (!stopping_ && SteadyNow() < next) {
      changed_.WaitFor(&mutex_, next - SteadyNow());
    }
    if (stopping_) return;
  }
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Apply(const AddressBook::Entries& entries) {
  for (const auto& [endpoint, names] : entries.endpoints) {
    std::unique_ptr<Worker>& worker = workers_[endpoint];
    if (worker != nullptr) {
      worker->wanted = true;
      worker->names = names;
      continue;
    }
    worker = std::make_unique<Worker>();
    worker->names = names;
    worker->number = next_number_++;
    worker->state.address = endpoint;
    worker->state.stage = WorkerStage::kConnecting;
    worker->thread = std::jthread([this, w = worker.get()] { RunWorker(w); });
  }
  for (const auto& [endpoint, worker] : workers_) {
    if (!entries.endpoints.contains(endpoint)) worker->wanted = false;
  }
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::WatchDeadlines() {
  while (true) {
    std::vector<std::shared_ptr<Session>> overdue;
    PoolLoad load;
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      load = Load();
      for (const auto& [endpoint, worker] : workers_) {
        if (!worker->timed_out.ok() || worker->session == nullptr) continue;
        worker->timed_out = Overdue(*worker);
        if (!worker->timed_out.ok()) overdue.push_back(worker->session);
      }
    }
    for (const auto& session : overdue) session->Cancel();
    if (options_.observer.on_load) options_.observer.on_load(load);
    MutexLock lock(&mutex_);
    if (!stopping_) changed_.WaitFor(&mutex_, kPoolTick);
  }
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::Overdue(const Worker& worker) const {
  const absl::Time now = SteadyNow();
  const std::string limit = absl::FormatDuration(options_.task_timeout);
  const bool is_late = std::ranges::any_of(
      worker.unanswered, [&](const auto& task) { return task.second < now; });
  if (is_late) {
    return absl::DeadlineExceededError(
        absl::StrCat("a task was not answered within ", limit));
  }
  // Of a prefix there is no answer, and its task waits for its home.
  if (worker.write_deadline < now) {
    return absl::DeadlineExceededError(
        absl::StrCat("it accepted none of what was sent within ", limit));
  }
  return absl::OkStatus();
}

// --- States ------------------------------------------------------------------

template <typename Task, typename Result>
void WorkerPool<Task, Result>::SetStage(Worker* worker, WorkerStage stage) {
  if (worker->state.stage == WorkerStage::kReady) patience_start_ = SteadyNow();
  worker->state.stage = stage;
  if (stage == WorkerStage::kReady) worker->unfit = false;
  changed_.NotifyAll();
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::NothingUsable() {
  bool all_unfit = resolve_errors_.empty();
  std::vector<WorkerState> states;
  for (const auto& [endpoint, worker] : workers_) {
    if (IsUnused(*worker)) continue;
    if (worker->state.stage == WorkerStage::kReady) return absl::OkStatus();
    all_unfit = all_unfit && worker->unfit;
    states.push_back(worker->state);
  }
  all_unfit = all_unfit && !states.empty();
  const bool impatient = SteadyNow() - patience_start_ > options_.peer_timeout;
  if (!all_unfit && !impatient) return absl::OkStatus();
  const std::string details =
      DescribeWorkers(options_, states, resolve_errors_);
  if (all_unfit) return absl::FailedPreconditionError(details);
  return absl::UnavailableError(absl::StrCat(
      "for ", absl::FormatDuration(options_.peer_timeout), ": ", details));
}

template <typename Task, typename Result>
PoolLoad WorkerPool<Task, Result>::Load() const {
  PoolLoad load;
  for (const auto& [endpoint, worker] : workers_) {
    if (!IsUnused(*worker)) ++load.workers[worker->state.stage];
  }
  load.pending = board_.pending();
  load.in_flight = board_.unanswered() - load.pending;
  return load;
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Observe(TaskOutcome outcome,
                                       int64_t times) const {
  if (!options_.observer.on_outcome) return;
  for (int64_t i = 0; i < times; ++i) options_.observer.on_outcome(outcome);
}

}  // namespace dapd
