// The bodies of WorkerPool, in the order of their declarations. Only
// worker_pool.h includes this file.
#pragma once

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/pool/worker_pool.h"

namespace dapd {

// A worker may take this long to end a stream in which nothing is in flight.
inline constexpr absl::Duration kStreamCloseTimeout = absl::Seconds(5);

template <typename Task, typename Result>
void WorkerPool<Task, Result>::SetUpdates(PolicyUpdates updates) {
  MutexLock lock(&mutex_);
  if (updates_ == nullptr) {
    // WaitForUpdates waits for the first update only.
    for (const auto& [endpoint, worker] : workers_) worker->changed.NotifyOne();
  }
  updates_ = std::make_shared<const PolicyUpdates>(std::move(updates));
  for (const auto& [endpoint, worker] : workers_) worker->unfit = false;
  patience_start_ = SteadyNow();
  Dispatch();
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Submit(Task task) {
  MutexLock lock(&mutex_);
  if (board_.outstanding() == 0) patience_start_ = SteadyNow();
  prefix_board_.Complete(task.id);
  board_.Add(std::move(task));
  Dispatch();
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::SubmitPrefix(Task partial) {
  MutexLock lock(&mutex_);
  prefix_board_.Tell(std::move(partial));
  Dispatch();
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::WithdrawPrefix(uint64_t id) {
  MutexLock lock(&mutex_);
  prefix_board_.Withdraw(id);
  Dispatch();
}

template <typename Task, typename Result>
absl::StatusOr<std::optional<Result>> WorkerPool<Task, Result>::NextWithin(
    absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(&mutex_);
  while (true) {
    if (board_.has_answer()) {
      absl::StatusOr<Result> answer = board_.PopAnswer();
      if (answer.ok()) return std::optional<Result>(*std::move(answer));
      // Shutdown itself makes tasks fail.
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
    answered_.WaitFor(&mutex_, std::min(kPoolTick, left));
  }
}

template <typename Task, typename Result>
absl::StatusOr<Result> WorkerPool<Task, Result>::Next() {
  ASSIGN_OR_RETURN(std::optional<Result> result,
                   NextWithin(absl::InfiniteDuration()));
  return *std::move(result);
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
      worker->changed.NotifyOne();
    }
    Dispatch();
    answered_.NotifyAll();
    stopped_.NotifyAll();
    watched_.NotifyAll();
  }
  for (const auto& session : sessions) session->Cancel();
  // Only discovery adds workers, so it ends first.
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
    }
    ended.clear();  // joins their threads, which need the mutex
    MutexLock lock(&mutex_);
    const absl::Time next = SteadyNow() + options_.resolve_interval;
    while (!stopping_ && SteadyNow() < next) {
      stopped_.WaitFor(&mutex_, next - SteadyNow());
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
    if (entries.endpoints.contains(endpoint)) continue;
    worker->wanted = false;
    worker->changed.NotifyOne();
  }
  Dispatch();
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::WatchDeadlines() {
  while (true) {
    std::vector<std::shared_ptr<Session>> overdue;
    PoolLoad load;
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      is_restaged_ = false;
      load = Load();
      const absl::Time now = SteadyNow();
      for (const auto& [endpoint, worker] : workers_) {
        if (!worker->timed_out.ok() || worker->session == nullptr) continue;
        worker->timed_out = Overdue(*worker, now);
        if (!worker->timed_out.ok()) overdue.push_back(worker->session);
      }
      Dispatch();  // a task may have become a straggler
    }
    for (const auto& session : overdue) session->Cancel();
    if (options_.observer.on_load) options_.observer.on_load(load);
    MutexLock lock(&mutex_);
    if (!stopping_ && !is_restaged_) watched_.WaitFor(&mutex_, kPoolTick);
  }
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::Overdue(const Worker& worker,
                                               absl::Time now) const {
  const bool is_late = std::ranges::any_of(
      worker.unanswered, [&](const auto& task) { return task.second < now; });
  if (is_late) {
    return absl::DeadlineExceededError(
        absl::StrCat("a task was not answered within ",
                     absl::FormatDuration(options_.task_timeout)));
  }
  // Nothing answers a prefix, and the task of a prefix waits for its home.
  if (worker.write_deadline < now) {
    return absl::DeadlineExceededError(
        absl::StrCat("it accepted none of what was sent within ",
                     absl::FormatDuration(options_.task_timeout)));
  }
  return absl::OkStatus();
}

// --- A worker's thread -------------------------------------------------------

template <typename Task, typename Result>
void WorkerPool<Task, Result>::RunWorker(Worker* worker) {
  Backoff backoff(options_.backoff, static_cast<uint64_t>(worker->number));
  while (true) {
    Lose(worker, RunSession(worker, &backoff));
    MutexLock lock(&mutex_);
    WaitForRetry(worker, backoff.Next());
    if (stopping_ || !worker->wanted) {
      worker->done = true;
      return;
    }
  }
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::WaitForRetry(Worker* worker,
                                            absl::Duration pause) {
  const absl::Time next = SteadyNow() + pause;
  while (!stopping_ && worker->wanted) {
    if (IsAlias(*worker)) {
      // Lose wakes the aliases of a worker.
      worker->changed.Wait(&mutex_);
      continue;
    }
    const absl::Duration left = next - SteadyNow();
    if (left <= absl::ZeroDuration()) return;
    worker->changed.WaitFor(&mutex_, left);
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
    worker->instance.clear();
    worker->timed_out = absl::OkStatus();
    SetStage(worker, WorkerStage::kConnecting);
  }
  ASSIGN_OR_RETURN(const WorkerGreeting greeting, session->Connect());
  RETURN_IF_ERROR(TakeIn(worker, greeting));
  if (std::exchange(worker->remark, greeting.remark) != greeting.remark &&
      !greeting.remark.empty()) {
    LogWarning(greeting.remark);
  }
  PolicyUpdates loaded;  // in this session
  while (const auto updates = WaitForUpdates(worker)) {
    RETURN_IF_ERROR(LoadAll(session.get(), *updates, &loaded));
    {
      MutexLock lock(&mutex_);
      worker->state.weights.clear();
      for (const auto& [set, update] : *updates) {
        worker->state.weights[set] = update->version;
      }
      worker->state.policy_version = NewestVersion(worker->state.weights);
      SetStage(worker, WorkerStage::kReady);
    }
    const absl::Status end = RunStream(worker, session.get(), updates);
    {
      // Without growing pauses, a worker that refuses its tasks would receive
      // all weights again and again.
      MutexLock lock(&mutex_);
      if (!worker->refusing) backoff->Reset();
    }
    RETURN_IF_ERROR(end);
  }
  return absl::CancelledError("no longer needed");
}

// Notes the greeting of `worker`. Returns ALREADY_EXISTS if the worker is an
// alias.
template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::TakeIn(Worker* worker,
                                              const WorkerGreeting& greeting) {
  MutexLock lock(&mutex_);
  worker->capacity = greeting.max_in_flight;
  worker->refusing = false;
  worker->alias_of.clear();
  for (const std::string& name : worker->names) {
    found_.emplace(name, IsIpv6(worker->state.address));
  }
  for (const auto& [endpoint, other] : workers_) {
    if (LeadsTo(*other, greeting.instance)) worker->alias_of = endpoint;
  }
  worker->instance = greeting.instance;
  if (worker->alias_of.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("it is the worker at ", worker->alias_of));
}

template <typename Task, typename Result>
std::shared_ptr<const PolicyUpdates> WorkerPool<Task, Result>::WaitForUpdates(
    Worker* worker) {
  MutexLock lock(&mutex_);
  while (!stopping_ && worker->wanted && updates_ == nullptr) {
    worker->changed.Wait(&mutex_);
  }
  if (stopping_ || !worker->wanted) return nullptr;
  SetStage(worker, WorkerStage::kLoading);
  return updates_;
}

template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::LoadAll(Session* session,
                                               const PolicyUpdates& updates,
                                               PolicyUpdates* loaded) {
  for (const auto& [set, update] : updates) {
    std::shared_ptr<const PolicyUpdate>& before = (*loaded)[set];
    if (before == update) continue;
    const absl::Time start = SteadyNow();
    ASSIGN_OR_RETURN(const uint64_t bytes, session->Load(set, *update));
    if (options_.observer.on_adapter_pushed) {
      options_.observer.on_adapter_pushed(
          absl::ToDoubleSeconds(SteadyNow() - start), bytes);
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
  Stream stream{worker, updates};
  std::jthread receiver([&] {
    while (auto answer = session->Receive()) {
      Accept(&stream, *std::move(answer));
    }
    MutexLock lock(&mutex_);
    stream.ended = true;
    worker->changed.NotifyOne();  // it may wait for this end
    Dispatch();
  });
  while (const auto work = WaitForWork(&stream)) {
    if (work->is_hedge) Observe(TaskOutcome::kHedged);
    if (!Write(session, *work)) break;
  }
  bool superseded = false;
  bool abandoned = false;
  {
    MutexLock lock(&mutex_);
    worker->write_deadline = absl::InfiniteFuture();
    superseded = stopping_ || updates_ != updates;
    // The worker still computes answers that nobody needs.
    abandoned = !worker->unanswered.empty() && !stream.ended &&
                (superseded || board_.InFlight(worker->number) == 0);
    worker->unanswered.clear();
    if (superseded) board_.Recall(worker->number);
    prefix_board_.Release(worker->number);
    Dispatch();
  }
  if (!abandoned) {
    session->HalfClose();
    MutexLock lock(&mutex_);
    const absl::Time deadline = SteadyNow() + kStreamCloseTimeout;
    while (!stream.ended && SteadyNow() < deadline) {
      worker->changed.WaitFor(&mutex_, deadline - SteadyNow());
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
std::optional<typename WorkerPool<Task, Result>::Work>
WorkerPool<Task, Result>::WaitForWork(Stream* stream) {
  MutexLock lock(&mutex_);
  stream->worker->write_deadline = absl::InfiniteFuture();
  stream->is_idle = true;
  idle_.push_back(stream);
  Dispatch();
  while (stream->is_idle) stream->worker->changed.Wait(&mutex_);
  return std::exchange(stream->work, std::nullopt);
}

template <typename Task, typename Result>
bool WorkerPool<Task, Result>::Write(Session* session, const Work& work) {
  if (work.task != nullptr) return session->Send(*work.task);
  if (work.prefix->task != nullptr) {
    return session->SendPrefix(*work.prefix->task);
  }
  return session->WithdrawPrefix(work.prefix->id);
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Accept(Stream* stream,
                                      TaskAnswer<Result> answer) {
  Worker& worker = *stream->worker;
  TaskOutcome outcome = TaskOutcome::kAccepted;
  bool counts = true;  // false: an error about a task that it does not have
  {
    MutexLock lock(&mutex_);
    worker.unanswered.erase(answer.id);
    const absl::Status status = ShortError(answer.result.status());
    if (updates_ != stream->updates) {
      outcome = TaskOutcome::kStale;
    } else if (status.ok()) {
      const absl::Duration age =
          board_.Age(worker.number, answer.id, SteadyNow());
      if (age > absl::ZeroDuration()) durations_.Add(age);
      if (!board_.Answer(answer.id, std::move(answer.result))) {
        outcome = TaskOutcome::kDuplicate;
      }
    } else if (IsFinalError(status)) {
      const bool failed = board_.Answer(
          answer.id,
          DescribeTaskError(
              options_.role, answer.id, worker.state.address, status));
      outcome = failed ? TaskOutcome::kFailed : TaskOutcome::kDuplicate;
    } else {
      outcome = absl::IsFailedPrecondition(status) ? TaskOutcome::kStale
                                                   : TaskOutcome::kLost;
      // The task did not cause other weights, nor the end of the worker.
      const bool may_mend =
          absl::IsFailedPrecondition(status) || absl::IsUnavailable(status);
      const absl::Status why =
          OfWorker(options_.role, worker.state.address, status);
      counts = may_mend ? board_.Return(worker.number, answer.id, why)
                        : board_.Refuse(worker.number, answer.id, why);
      if (stream->refusal.ok()) stream->refusal = status;
      worker.refusing = true;
    }
    Dispatch();
  }
  if (counts) Observe(outcome);
}

template <typename Task, typename Result>
void WorkerPool<Task, Result>::Lose(Worker* worker, absl::Status why) {
  int64_t returned = 0;
  bool timed_out = false;
  bool is_news = false;
  bool was_ready = false;
  bool is_alias = false;
  {
    MutexLock lock(&mutex_);
    was_ready = worker->state.stage == WorkerStage::kReady;
    is_alias = !worker->alias_of.empty();
    timed_out = !worker->timed_out.ok();
    why = ShortError(timed_out ? worker->timed_out : why);
    const std::string error(why.message());
    // The capacity is 0 until the worker's first greeting.
    const bool is_early = worker->capacity == 0 && absl::IsUnavailable(why) &&
                          SteadyNow() - worker->since < kStartPatience;
    is_news = !stopping_ && worker->wanted && !is_early &&
              (is_alias || !IsUnused(*worker)) &&
              (worker->told_error != error || was_ready);
    if (is_news) worker->told_error = error;
    worker->state.last_error = error;
    worker->state.policy_version = -1;
    worker->state.weights.clear();
    worker->unfit =
        !was_ready && (absl::IsFailedPrecondition(why) || IsFinalError(why));
    worker->session.reset();
    returned = board_.ReturnAll(
        worker->number, OfWorker(options_.role, worker->state.address, why));
    SetStage(worker, WorkerStage::kLost);
    for (const auto& [endpoint, other] : workers_) {
      if (other->alias_of == worker->state.address) other->changed.NotifyOne();
    }
    answered_.NotifyAll();  // perhaps the last usable worker
  }
  Observe(timed_out ? TaskOutcome::kTimeout : TaskOutcome::kLost, returned);
  if (is_news && is_alias) {
    LogInfo(absl::StrCat(options_.role,
                         " worker ",
                         worker->state.address,
                         " is not used: ",
                         std::string(why.message())));
  } else if (is_news) {
    LogWarning(DescribeLoss(
        options_.role, worker->state.address, was_ready, returned, why));
  }
}

// --- The distribution of work -----------------------------------------------

// Gives work to every idle stream that may have some, and wakes each stream
// that has to go on. Follows every change of the guarded state.
template <typename Task, typename Result>
void WorkerPool<Task, Result>::Dispatch() {
  if (board_.has_answer()) answered_.NotifyAll();
  if (idle_.empty()) return;
  const absl::Time now = SteadyNow();
  const Moment moment{now, now - durations_.StragglerAge(), UsableCapacity()};
  // A worker that gets a task may lose its room, and other workers may then
  // take the tasks whose home it is: hence until a pass finds nothing.
  bool found = true;
  while (found) {
    found = false;
    for (auto idle = idle_.begin(); idle != idle_.end();) {
      Stream& stream = **idle;
      if (!IsOver(stream)) {
        stream.work = FindWork(stream.worker, moment);
        if (!stream.work.has_value()) {
          ++idle;
          continue;
        }
        found = true;
      }
      idle = idle_.erase(idle);
      stream.is_idle = false;
      stream.worker->changed.NotifyOne();
    }
  }
}

template <typename Task, typename Result>
bool WorkerPool<Task, Result>::IsOver(const Stream& stream) const {
  return stopping_ || stream.ended || updates_ != stream.updates ||
         (!IsSending(*stream.worker) &&
          board_.InFlight(stream.worker->number) == 0);
}

// Returns the part of `tasks` that a worker of `capacity` has among workers of
// `total`. The parts add up to at least all tasks, so no task is left over.
inline int64_t ShareOf(int64_t tasks, int64_t capacity, int64_t total) {
  return (tasks * capacity + total - 1) / total;
}

template <typename Task, typename Result>
std::optional<typename WorkerPool<Task, Result>::Work>
WorkerPool<Task, Result>::FindWork(Worker* worker, const Moment& moment) {
  if (!IsSending(*worker)) return std::nullopt;
  const absl::Time deadline = moment.now + options_.task_timeout;
  if (HasRoom(*worker)) {
    const bool is_hedge = !board_.has_pending();
    auto task = is_hedge
                    ? board_.TakeStraggler(
                          worker->number, moment.now, moment.straggles_since)
                    : TakeTask(*worker, moment);
    if (task != nullptr) {
      worker->write_deadline = deadline;
      worker->unanswered[task->id] = deadline;
      return Work{std::move(task), std::nullopt, is_hedge};
    }
  }
  const bool adopts =
      prefix_board_.HasOrphans() &&
      prefix_board_.Homes(worker->number) <
          ShareOf(prefix_board_.size(), worker->capacity, moment.capacity);
  auto news = prefix_board_.Next(worker->number, adopts);
  if (!news.has_value()) return std::nullopt;
  worker->write_deadline = deadline;
  return Work{nullptr, std::move(news)};
}

// Returns the next pending task for `worker`, which has room; null if it gets
// none now. It takes every task whose home it is, then, up to its share, tasks
// without a home, then tasks whose home has no room.
template <typename Task, typename Result>
std::shared_ptr<const Task> WorkerPool<Task, Result>::TakeTask(
    const Worker& worker, const Moment& moment) {
  const int64_t number = worker.number;
  const auto take = [&](const auto& wanted) {
    return board_.TakeIf(
        [&](uint64_t id) {
          return wanted(prefix_board_.Home(id)) && MayTake(worker, id);
        },
        number,
        moment.now);
  };
  auto task = prefix_board_.Homes(number) == 0
                  ? nullptr
                  : take([&](int64_t home) { return home == number; });
  if (task == nullptr &&
      board_.InFlight(number) <
          ShareOf(board_.unanswered(), worker.capacity, moment.capacity)) {
    task =
        take([&](int64_t home) { return home == PrefixBoard<Task>::kNobody; });
    if (task == nullptr) {
      const std::set<int64_t> roomy = WithRoom();
      task = take([&](int64_t home) { return !roomy.contains(home); });
    }
  }
  if (task != nullptr) prefix_board_.Take(task->id, number);
  return task;
}

// A worker gets a task that it has refused only if every usable worker has
// refused the task. Otherwise a broken worker that comes back at once would use
// up the attempts of a task before a sound worker has room for it.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::MayTake(const Worker& worker,
                                       uint64_t id) const {
  if (!board_.HasRefused(worker.number, id)) return true;
  return std::none_of(workers_.begin(), workers_.end(), [&](const auto& w) {
    return IsUsable(*w.second) && !board_.HasRefused(w.second->number, id);
  });
}

// Returns whether new messages may go to `worker` while its stream is open.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::IsSending(const Worker& worker) {
  return worker.wanted && !worker.refusing;
}

// Returns whether `worker` is ready for tasks, or will be soon.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::IsUsable(const Worker& worker) {
  return (worker.state.stage == WorkerStage::kReady ||
          worker.state.stage == WorkerStage::kLoading) &&
         IsSending(worker);
}

// Returns whether `worker` can take one more task.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::HasRoom(const Worker& worker) {
  return static_cast<int64_t>(worker.unanswered.size()) < worker.capacity;
}

// Returns the numbers of the workers that will soon take a task whose home they
// are.
template <typename Task, typename Result>
std::set<int64_t> WorkerPool<Task, Result>::WithRoom() const {
  std::set<int64_t> numbers;
  for (const auto& [endpoint, worker] : workers_) {
    if (worker->state.stage == WorkerStage::kReady && IsSending(*worker) &&
        HasRoom(*worker)) {
      numbers.insert(worker->number);
    }
  }
  return numbers;
}

template <typename Task, typename Result>
int64_t WorkerPool<Task, Result>::UsableCapacity() const {
  int64_t total = 0;
  for (const auto& [endpoint, worker] : workers_) {
    if (IsUsable(*worker)) total += worker->capacity;
  }
  return total;
}

// --- Reports -----------------------------------------------------------------

template <typename Task, typename Result>
void WorkerPool<Task, Result>::SetStage(Worker* worker, WorkerStage stage) {
  if (worker->state.stage == WorkerStage::kReady) patience_start_ = SteadyNow();
  worker->state.stage = stage;
  if (stage == WorkerStage::kReady) worker->unfit = false;
  is_restaged_ = true;
  watched_.NotifyOne();
  Dispatch();
}

// Returns whether the session at the used address continues.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::IsAlias(const Worker& worker) const {
  const auto other = workers_.find(worker.alias_of);
  return other != workers_.end() && LeadsTo(*other->second, worker.instance);
}

// Returns whether `worker` is no alias and has a session with the process
// `instance`.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::LeadsTo(const Worker& worker,
                                       const std::string& instance) {
  return !instance.empty() && worker.session != nullptr &&
         worker.alias_of.empty() && worker.instance == instance;
}

// Returns whether no report mentions `worker`, whatever its stage is.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::IsUnused(const Worker& worker) const {
  if (!worker.alias_of.empty()) return workers_.contains(worker.alias_of);
  const bool is_ipv6 = IsIpv6(worker.state.address);
  return worker.capacity == 0 && !worker.names.empty() &&
         std::ranges::all_of(worker.names, [&](const std::string& name) {
           return found_.contains({name, !is_ipv6}) &&
                  !found_.contains({name, is_ipv6});
         });
}

// Returns the error with which Next gives up; OK while it has to wait.
template <typename Task, typename Result>
absl::Status WorkerPool<Task, Result>::NothingUsable() const {
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
