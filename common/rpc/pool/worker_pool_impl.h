// The bodies of WorkerPool; included by worker_pool.h only.
#pragma once

#include "common/rpc/pool/worker_pool.h"

namespace dapd {

// How long a worker may take to end a stream in which nothing is in flight.
inline constexpr absl::Duration kStreamCloseTimeout = absl::Seconds(5);
// How often the watchdog looks at deadlines and Next at its patience.
inline constexpr absl::Duration kPoolTick = absl::Milliseconds(100);

template <typename Task, typename Result>
absl::StatusOr<Result> WorkerPool<Task, Result>::Next() {
  ASSIGN_OR_RETURN(std::optional<Result> result,
                   NextWithin(absl::InfiniteDuration()));
  return *std::move(result);
}

template <typename Task, typename Result>
absl::StatusOr<std::optional<Result>> WorkerPool<Task, Result>::NextWithin(
    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mutex_);
  while (true) {
    if (board_.has_answer()) {
      ASSIGN_OR_RETURN(Result answer, board_.PopAnswer());
      return std::optional<Result>(std::move(answer));
    }
    if (stopping_) {
      return absl::CancelledError(
          absl::StrCat("the ", options_.role, " client was shut down"));
    }
    if (board_.outstanding() == 0 || updates_ == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("no ",
                       options_.role,
                       " task was submitted, or no policy was set: there is "
                       "nothing to wait for"));
    }
    RETURN_IF_ERROR(NothingUsable());
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    changed_.WaitFor(&mutex_, std::min(kPoolTick, left));
  }
}

template <typename Task, typename Result>
std::vector<WorkerState> WorkerPool<Task, Result>::Workers() const {
  MutexLock lock(&mutex_);
  std::vector<WorkerState> states;
  for (const auto& [endpoint, worker] : workers_) {
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

// --- Discovery and deadlines
// --------------------------------------------------

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Discover() {
  AddressBook book(options_.addresses, options_.resolver);
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
      resolve_errors_ = std::move(entries.errors);
      Apply(entries.endpoints);
      changed_.NotifyAll();
    }
    ended.clear();  // joins, without the lock
    MutexLock lock(&mutex_);
    const absl::Time next = absl::Now() + options_.resolve_interval;
    while (!stopping_ && absl::Now() < next) {
      changed_.WaitFor(&mutex_, next - absl::Now());
    }
    if (stopping_) return;
  }
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Apply(const std::set<std::string>& endpoints) {
  for (const std::string& endpoint : endpoints) {
    std::unique_ptr<Worker>& worker = workers_[endpoint];
    if (worker != nullptr) {
      worker->wanted = true;
      continue;
    }
    worker = std::make_unique<Worker>();
    worker->number = next_number_++;
    worker->state.address = endpoint;
    worker->state.stage = WorkerStage::kConnecting;
    worker->thread = std::jthread([this, w = worker.get()] { RunWorker(w); });
  }
  for (const auto& [endpoint, worker] : workers_) {
    if (!endpoints.contains(endpoint)) worker->wanted = false;
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
        if (!worker->timed_out && worker->session != nullptr &&
            board_.HasExpired(worker->number, absl::Now())) {
          worker->timed_out = true;
          overdue.push_back(worker->session);
        }
      }
    }
    for (const auto& session : overdue) session->Cancel();
    if (options_.observer.on_load) options_.observer.on_load(load);
    MutexLock lock(&mutex_);
    if (!stopping_) changed_.WaitFor(&mutex_, kPoolTick);
  }
}

// --- One worker's thread
// ------------------------------------------------------

template <typename Task, typename Result>
void WorkerPool<Task, Result>::RunWorker(Worker* worker) {
  Backoff backoff(options_.backoff, static_cast<uint64_t>(worker->number));
  while (true) {
    Lose(worker, RunSession(worker, &backoff));
    MutexLock lock(&mutex_);
    const absl::Time next = absl::Now() + backoff.Next();
    while (!stopping_ && worker->wanted && absl::Now() < next) {
      changed_.WaitFor(&mutex_, next - absl::Now());
    }
    if (stopping_ || !worker->wanted) {
      worker->done = true;
      return;
    }
  }
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::RunSession(Worker* worker,
                                                  Backoff* backoff) {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("shutting down");
    session = factory_(worker->state.address);
    worker->session = session;
    worker->timed_out = false;
    SetStage(worker, WorkerStage::kConnecting);
  }
  ASSIGN_OR_RETURN(const int64_t capacity, session->Connect());
  {
    MutexLock lock(&mutex_);
    worker->capacity = capacity;
    worker->refusing = false;
  }
  PolicyUpdates loaded;  // in this session
  while (const auto updates = WaitForUpdates(worker)) {
    RETURN_IF_ERROR(LoadAll(session.get(), *updates, &loaded));
    backoff->Reset();
    {
      MutexLock lock(&mutex_);
      worker->state.weights.clear();
      for (const auto& [set, update] : *updates) {
        worker->state.weights[set] = update->version;
      }
      worker->state.policy_version = NewestVersion(worker->state.weights);
      SetStage(worker, WorkerStage::kReady);
    }
    RETURN_IF_ERROR(RunStream(worker, session.get(), updates));
  }
  return absl::CancelledError("no longer needed");
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::LoadAll(Session* session,
                                               const PolicyUpdates& updates,
                                               PolicyUpdates* loaded) {
  for (const auto& [set, update] : updates) {
    std::shared_ptr<const PolicyUpdate>& before = (*loaded)[set];
    if (before == update) continue;
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(const uint64_t bytes, session->Load(set, *update));
    if (options_.observer.on_adapter_pushed) {
      options_.observer.on_adapter_pushed(
          absl::ToDoubleSeconds(absl::Now() - start), bytes);
    }
    before = update;
  }
  return absl::OkStatus();
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::RunStream(
    Worker* worker,
    Session* session,
    std::shared_ptr<const PolicyUpdates> updates) {
  RETURN_IF_ERROR(session->OpenStream(*updates));
  Stream stream{updates};
  std::jthread receiver([&] {
    while (auto answer = session->Receive()) {
      Accept(worker, &stream, *std::move(answer));
    }
    MutexLock lock(&mutex_);
    stream.ended = true;
    changed_.NotifyAll();
  });
  while (const auto work = WaitForWork(worker, &stream)) {
    if (std::exchange(stream.hedged, false)) Observe(TaskOutcome::kHedged);
    const bool written = work->task != nullptr ? session->Send(*work->task)
                         : work->prefix->task != nullptr
                             ? session->SendPrefix(*work->prefix->task)
                             : session->WithdrawPrefix(work->prefix->id);
    if (!written) break;
  }
  bool superseded = false;
  bool abandoned = false;
  {
    MutexLock lock(&mutex_);
    superseded = stopping_ || updates_ != updates;
    abandoned = superseded && board_.InFlight(worker->number) > 0;
    if (superseded) board_.Recall(worker->number);
    prefix_board_.Release(worker->number);
  }
  if (!abandoned) {
    session->HalfClose();
    MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + kStreamCloseTimeout;
    while (!stream.ended && absl::Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - absl::Now());
    }
    abandoned = !stream.ended;
  }
  if (abandoned) session->AbortStream();
  receiver.join();
  const absl::Status end = session->CloseStream();
  if (superseded) return absl::OkStatus();
  if (!stream.refusal.ok()) return stream.refusal;
  if (!end.ok()) return end;
  return absl::UnavailableError("the worker ended the stream");
}

template <typename Task, typename Result>
std::shared_ptr<const PolicyUpdates> WorkerPool<Task, Result>::WaitForUpdates(
    Worker* worker) {
  MutexLock lock(&mutex_);
  while (!stopping_ && worker->wanted && updates_ == nullptr) {
    changed_.Wait(&mutex_);
  }
  if (stopping_ || !worker->wanted) return nullptr;
  SetStage(worker, WorkerStage::kLoading);
  return updates_;
}

template <typename Task, typename Result>
std::optional<typename WorkerPool<Task, Result>::Work>
WorkerPool<Task, Result>::WaitForWork(Worker* worker, Stream* stream) {
  MutexLock lock(&mutex_);
  while (!stopping_ && !stream->ended && updates_ == stream->updates) {
    const bool sending = worker->wanted && !worker->refusing;
    if (!sending && board_.InFlight(worker->number) == 0) break;
    if (sending) {
      if (auto task = TakeTask(worker, stream))
        return Work{std::move(task), {}};
      const bool adopts = prefix_board_.Homes(worker->number) <
                          Share(*worker, prefix_board_.size());
      auto news = prefix_board_.Next(worker->number, adopts);
      if (news.has_value()) return Work{nullptr, std::move(news)};
    }
    // A task becomes a straggler by the passing of time.
    changed_.WaitFor(&mutex_, kPoolTick);
  }
  return std::nullopt;
}

// The next task for `worker`, null if it is to have none now. Of those that
// have their home with it, it takes what it can; of the others its share, first
// those without a home.
template <typename Task, typename Result>
std::shared_ptr<const Task> WorkerPool<Task, Result>::TakeTask(Worker* worker,
                                                               Stream* stream) {
  const int64_t number = worker->number;
  const int64_t in_flight = board_.InFlight(number);
  if (in_flight >= worker->capacity) return nullptr;
  const absl::Time now = absl::Now();
  const absl::Time deadline = now + options_.task_timeout;
  if (!board_.has_pending()) {
    auto task = board_.TakeStraggler(
        number, deadline, now, now - durations_.StragglerAge());
    stream->hedged = task != nullptr;
    return task;
  }
  const auto take = [&](const auto& wanted) {
    return board_.TakeIf(
        [&](uint64_t id) { return wanted(prefix_board_.Home(id)); },
        number,
        deadline,
        now);
  };
  auto task = take([&](int64_t home) { return home == number; });
  if (task == nullptr && in_flight < Share(*worker, board_.unanswered())) {
    task =
        take([&](int64_t home) { return home == PrefixBoard<Task>::kNobody; });
    if (task == nullptr) {
      task = take([&](int64_t home) { return !HasRoom(home); });
    }
  }
  if (task != nullptr) prefix_board_.Take(task->id, number);
  return task;
}

// Whether the worker of that number will take a task of its own soon.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::HasRoom(int64_t number) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) {
    const Worker& worker = *w.second;
    return worker.number == number &&
           worker.state.stage == WorkerStage::kReady && worker.wanted &&
           !worker.refusing && board_.InFlight(number) < worker.capacity;
  });
}

// Its part of `tasks` by capacity, among the workers that are ready or about to
// be. The parts add up to all tasks, so none is left over.
template <typename Task, typename Result>
int64_t WorkerPool<Task, Result>::Share(const Worker& worker,
                                        int64_t tasks) const {
  int64_t total = 0;
  for (const auto& [endpoint, other] : workers_) {
    const bool usable = other->state.stage == WorkerStage::kReady ||
                        other->state.stage == WorkerStage::kLoading;
    if (usable && other->wanted && !other->refusing) total += other->capacity;
  }
  return (tasks * worker.capacity + total - 1) / total;
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Accept(Worker* worker,
                                      Stream* stream,
                                      TaskAnswer<Result> answer) {
  TaskOutcome outcome = TaskOutcome::kAccepted;
  bool counts = true;  // an error about a task it does not have does not
  {
    MutexLock lock(&mutex_);
    const absl::Status status = answer.result.status();
    if (updates_ != stream->updates) {
      outcome = TaskOutcome::kStale;
    } else if (status.ok()) {
      const absl::Duration age =
          board_.Age(worker->number, answer.id, absl::Now());
      if (age > absl::ZeroDuration()) durations_.Add(age);
      if (!board_.Answer(answer.id, std::move(answer.result))) {
        outcome = TaskOutcome::kDuplicate;
      }
    } else if (IsFinalError(status)) {
      board_.Answer(
          answer.id,
          DescribeTaskError(
              options_.role, answer.id, worker->state.address, status));
      outcome = TaskOutcome::kFailed;
    } else {
      outcome = absl::IsFailedPrecondition(status) ? TaskOutcome::kStale
                                                   : TaskOutcome::kLost;
      counts = board_.Return(worker->number, answer.id, status);
      if (stream->refusal.ok()) stream->refusal = status;
      worker->refusing = true;
    }
    changed_.NotifyAll();
  }
  if (counts) Observe(outcome);
}

// --- States
// -------------------------------------------------------------------

template <typename Task, typename Result>
void WorkerPool<Task, Result>::SetStage(Worker* worker, WorkerStage stage) {
  if (worker->state.stage == WorkerStage::kReady) patience_start_ = absl::Now();
  worker->state.stage = stage;
  if (stage == WorkerStage::kReady) worker->unfit = false;
  changed_.NotifyAll();
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Lose(Worker* worker, absl::Status why) {
  int64_t returned = 0;
  bool timed_out = false;
  bool is_news = false;
  bool was_ready = false;
  {
    MutexLock lock(&mutex_);
    was_ready = worker->state.stage == WorkerStage::kReady;
    timed_out = worker->timed_out;
    if (timed_out) {
      why = absl::DeadlineExceededError(
          absl::StrCat("a task had no answer within ",
                       absl::FormatDuration(options_.task_timeout)));
    }
    const std::string error(why.message());
    is_news = !stopping_ && worker->wanted &&
              (worker->state.last_error != error ||
               worker->state.stage == WorkerStage::kReady);
    worker->state.last_error = error;
    worker->state.policy_version = -1;
    worker->state.weights.clear();
    worker->unfit =
        !was_ready && (absl::IsFailedPrecondition(why) || IsFinalError(why));
    worker->session.reset();
    SetStage(worker, WorkerStage::kLost);
    returned = board_.ReturnAll(worker->number, why);
  }
  Observe(timed_out ? TaskOutcome::kTimeout : TaskOutcome::kLost, returned);
  if (is_news) {
    LogWarning(DescribeLoss(
        options_.role, worker->state.address, was_ready, returned, why));
  }
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::NothingUsable() {
  bool all_unfit = !workers_.empty() && resolve_errors_.empty();
  std::vector<WorkerState> states;
  for (const auto& [endpoint, worker] : workers_) {
    if (worker->state.stage == WorkerStage::kReady) return absl::OkStatus();
    all_unfit = all_unfit && worker->unfit;
    states.push_back(worker->state);
  }
  const bool impatient = absl::Now() - patience_start_ > options_.peer_timeout;
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
    ++load.workers[worker->state.stage];
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
