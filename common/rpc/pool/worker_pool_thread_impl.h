// The bodies of WorkerPool that run on a worker's thread, from its connection
// to its loss. Included by worker_pool.h only.
#pragma once

#include "common/rpc/pool/worker_pool.h"

namespace dapd {

// How long a worker may take to end a stream in which nothing is in flight.
inline constexpr absl::Duration kStreamCloseTimeout = absl::Seconds(5);

template <typename Task, typename Result>
void WorkerPool<Task, Result>::RunWorker(Worker* worker) {
  Backoff backoff(options_.backoff, static_cast<uint64_t>(worker->number));
  while (true) {
    Lose(worker, RunSession(worker, &backoff));
    MutexLock lock(&mutex_);
    const absl::Time next = SteadyNow() + backoff.Next();
    while (!stopping_ && worker->wanted) {
      const absl::Duration left =
          IsAlias(*worker) ? kPoolTick : next - SteadyNow();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(&mutex_, left);
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
      // One that refuses what it gets takes all weights anew for nothing.
      MutexLock lock(&mutex_);
      if (!worker->refusing) backoff->Reset();
    }
    RETURN_IF_ERROR(end);
  }
  return absl::CancelledError("no longer needed");
}

// Notes what the worker said. ALREADY_EXISTS: it is an alias.
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
      absl::StrCat("it is the one at ", worker->alias_of));
}

// Whether the session at the other address goes on.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::IsAlias(const Worker& worker) const {
  const auto other = workers_.find(worker.alias_of);
  return other != workers_.end() && LeadsTo(*other->second, worker.instance);
}

// Whether a session of its own leads `worker` to the process `instance`.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::LeadsTo(const Worker& worker,
                                       const std::string& instance) {
  return !instance.empty() && worker.session != nullptr &&
         worker.alias_of.empty() && worker.instance == instance;
}

// Whether nobody hears of it, in whatever state it is.
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
    worker->write_deadline = absl::InfiniteFuture();
    superseded = stopping_ || updates_ != updates;
    // It still works at something, and nothing of that is of use.
    abandoned = !worker->unanswered.empty() && !stream.ended &&
                (superseded || board_.InFlight(worker->number) == 0);
    worker->unanswered.clear();
    if (superseded) board_.Recall(worker->number);
    prefix_board_.Release(worker->number);
  }
  if (!abandoned) {
    session->HalfClose();
    MutexLock lock(&mutex_);
    const absl::Time deadline = SteadyNow() + kStreamCloseTimeout;
    while (!stream.ended && SteadyNow() < deadline) {
      changed_.WaitFor(&mutex_, deadline - SteadyNow());
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
  worker->write_deadline = absl::InfiniteFuture();
  const auto start_writing = [&](Work work) {
    const absl::Time deadline = SteadyNow() + options_.task_timeout;
    worker->write_deadline = deadline;
    if (work.task != nullptr) worker->unanswered[work.task->id] = deadline;
    return work;
  };
  while (!stopping_ && !stream->ended && updates_ == stream->updates) {
    const bool sending = worker->wanted && !worker->refusing;
    if (!sending && board_.InFlight(worker->number) == 0) break;
    if (sending) {
      if (auto task = TakeTask(worker, stream)) {
        return start_writing({std::move(task), {}});
      }
      const bool adopts = prefix_board_.HasOrphans() &&
                          prefix_board_.Homes(worker->number) <
                              Share(*worker, prefix_board_.size());
      auto news = prefix_board_.Next(worker->number, adopts);
      if (news.has_value()) return start_writing({nullptr, std::move(news)});
    }
    // A task becomes a straggler by the passing of time.
    changed_.WaitFor(&mutex_, kPoolTick);
  }
  return std::nullopt;
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
    // A capacity is what it tells once it answers.
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
    SetStage(worker, WorkerStage::kLost);
    returned = board_.ReturnAll(
        worker->number, OfWorker(options_.role, worker->state.address, why));
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

}  // namespace dapd
