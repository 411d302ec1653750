// The bodies of WorkerPool that choose a worker's next task, and take in its
// answers. Included by worker_pool.h only.
#pragma once

#include "common/rpc/pool/worker_pool.h"

namespace dapd {

// The next task for `worker`, null if it is to have none now. Of those that
// have their home with it, it takes what it can; of the others its share, first
// those without a home.
template <typename Task, typename Result>
std::shared_ptr<const Task> WorkerPool<Task, Result>::TakeTask(Worker* worker,
                                                               Stream* stream) {
  const int64_t number = worker->number;
  const int64_t in_flight = board_.InFlight(number);
  if (!HasRoom(*worker)) return nullptr;
  const absl::Time now = SteadyNow();
  if (!board_.has_pending()) {
    auto task =
        board_.TakeStraggler(number, now, now - durations_.StragglerAge());
    stream->hedged = task != nullptr;
    return task;
  }
  const auto take = [&](const auto& wanted) {
    return board_.TakeIf(
        [&](uint64_t id) {
          return wanted(prefix_board_.Home(id)) && MayTake(*worker, id);
        },
        number,
        now);
  };
  auto task = prefix_board_.Homes(number) == 0
                  ? nullptr
                  : take([&](int64_t home) { return home == number; });
  if (task == nullptr && in_flight < Share(*worker, board_.unanswered())) {
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

// What a worker has refused it gets again only if everybody has: a broken one
// that comes back at once would use up a task's attempts before a sound one has
// room for it.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::MayTake(const Worker& worker,
                                       uint64_t id) const {
  if (!board_.HasRefused(worker.number, id)) return true;
  return std::none_of(workers_.begin(), workers_.end(), [&](const auto& w) {
    return IsUsable(*w.second) && !board_.HasRefused(w.second->number, id);
  });
}

// Whether it is ready for tasks, or about to be.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::IsUsable(const Worker& worker) {
  return (worker.state.stage == WorkerStage::kReady ||
          worker.state.stage == WorkerStage::kLoading) &&
         worker.wanted && !worker.refusing;
}

// Whether it can be sent one more task.
template <typename Task, typename Result>
bool WorkerPool<Task, Result>::HasRoom(const Worker& worker) {
  return static_cast<int64_t>(worker.unanswered.size()) < worker.capacity;
}

// The numbers of the workers that will take a task of their own soon.
template <typename Task, typename Result>
std::set<int64_t> WorkerPool<Task, Result>::WithRoom() const {
  std::set<int64_t> numbers;
  for (const auto& [endpoint, worker] : workers_) {
    if (worker->state.stage == WorkerStage::kReady && worker->wanted &&
        !worker->refusing && HasRoom(*worker)) {
      numbers.insert(worker->number);
    }
  }
  return numbers;
}

// Its part of `tasks` by capacity, among the workers that are ready or about to
// be. The parts add up to all tasks, so none is left over.
template <typename Task, typename Result>
int64_t WorkerPool<Task, Result>::Share(const Worker& worker,
                                        int64_t tasks) const {
  int64_t total = 0;
  for (const auto& [endpoint, other] : workers_) {
    if (IsUsable(*other)) total += other->capacity;
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
    worker->unanswered.erase(answer.id);
    const absl::Status status = ShortError(answer.result.status());
    if (updates_ != stream->updates) {
      outcome = TaskOutcome::kStale;
    } else if (status.ok()) {
      const absl::Duration age =
          board_.Age(worker->number, answer.id, SteadyNow());
      if (age > absl::ZeroDuration()) durations_.Add(age);
      if (!board_.Answer(answer.id, std::move(answer.result))) {
        outcome = TaskOutcome::kDuplicate;
      }
    } else if (IsFinalError(status)) {
      const bool failed = board_.Answer(
          answer.id,
          DescribeTaskError(
              options_.role, answer.id, worker->state.address, status));
      outcome = failed ? TaskOutcome::kFailed : TaskOutcome::kDuplicate;
    } else {
      outcome = absl::IsFailedPrecondition(status) ? TaskOutcome::kStale
                                                   : TaskOutcome::kLost;
      // Neither other weights nor its end is the task's matter.
      const bool may_mend =
          absl::IsFailedPrecondition(status) || absl::IsUnavailable(status);
      const absl::Status why =
          OfWorker(options_.role, worker->state.address, status);
      counts = may_mend ? board_.Return(worker->number, answer.id, why)
                        : board_.Refuse(worker->number, answer.id, why);
      if (stream->refusal.ok()) stream->refusal = status;
      worker->refusing = true;
    }
    changed_.NotifyAll();
  }
  if (counts) Observe(outcome);
}

}  // namespace dapd
