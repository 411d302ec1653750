// TaskBoard: which tasks wait, which worker has which task, and the answers.
// Pure bookkeeping: it has no threads and no clock, and knows only the number
// of a worker. Once a task is answered, no worker has it any more, even if one
// still computes it.
//
// A task is pending, in flight with one or two workers, or answered: Add, Take
// and Answer move it forward, Return moves it back. TakeStraggler gives a slow
// task to a second worker as well. Results are handed out in the order in which
// they arrived. A question about a worker costs in proportion to the worker's
// tasks, not to all tasks, since each of a thousand workers asks several times
// a second. Not thread-safe: the pool's mutex guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/check.h"
#include "common/rpc/pool/task_failure.h"

namespace dapd {

// Task has a member `id` (uint64_t), unique among the unanswered tasks.
template <typename Task, typename Result>
class TaskBoard {
 public:
  // A task that was returned `max_attempts` times fails (task_failure.h).
  explicit TaskBoard(int max_attempts) : max_attempts_(max_attempts) {}

  void Add(Task task) {
    const uint64_t id = task.id;
    auto entry = std::make_shared<const Task>(std::move(task));
    const bool added = entries_.try_emplace(id, Entry{std::move(entry)}).second;
    Check(added, "task ids are unique among the unanswered");
    pending_.push_back(id);
  }

  bool has_pending() const { return !pending_.empty(); }
  int64_t pending() const { return static_cast<int64_t>(pending_.size()); }
  // Returns the number of tasks that are pending or in flight.
  int64_t unanswered() const { return static_cast<int64_t>(entries_.size()); }
  // Returns the number of added tasks whose result was not popped yet.
  size_t outstanding() const { return entries_.size() + answers_.size(); }

  // Gives the first pending task, of which there must be one, to `worker`.
  // `since`: the current time, for Age and TakeStraggler.
  std::shared_ptr<const Task> Take(int64_t worker,
                                   absl::Time since = absl::InfiniteFuture()) {
    return TakeIf([](uint64_t) { return true; }, worker, since);
  }

  // Returns the first pending task whose id `wanted` accepts; null if there is
  // none.
  template <typename Wanted>
  std::shared_ptr<const Task> TakeIf(const Wanted& wanted,
                                     int64_t worker,
                                     absl::Time since) {
    const auto found = std::find_if(pending_.begin(), pending_.end(), wanted);
    if (found == pending_.end()) return nullptr;
    Entry& entry = entries_.at(*found);
    Lend(*found, &entry, {worker, since});
    pending_.erase(found);
    return entry.task;
  }

  // Gives to `worker`, too, the task that one other worker has had for longest
  // and since before `before`. Returns null if there is no such task that
  // `worker` has not refused.
  std::shared_ptr<const Task> TakeStraggler(int64_t worker,
                                            absl::Time since,
                                            absl::Time before) {
    for (const auto& [taken, id] : with_one_) {
      if (taken >= before) break;
      Entry& entry = entries_.at(id);
      if (entry.leases[0].worker == worker ||
          entry.refused_by.contains(worker)) {
        continue;
      }
      Lend(id, &entry, {worker, since});
      return entry.task;
    }
    return nullptr;
  }

  int64_t InFlight(int64_t worker) const {
    return static_cast<int64_t>(IdsOf(worker).size());
  }

  // Returns how long `worker` has had the task; zero if it does not have it.
  absl::Duration Age(int64_t worker, uint64_t id, absl::Time now) const {
    const auto found = entries_.find(id);
    const Lease* lease =
        found == entries_.end() ? nullptr : found->second.Find(worker);
    return lease == nullptr ? absl::ZeroDuration() : now - lease->since;
  }

  // Takes the first answer to a task, from any worker. Returns false for a
  // duplicate: the task does not wait for an answer.
  bool Answer(uint64_t id, absl::StatusOr<Result> result) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return false;
    if (found->second.leases.empty()) {
      pending_.erase(std::find(pending_.begin(), pending_.end(), id));
    }
    Unlist(id, found->second);
    entries_.erase(found);
    answers_.push_back(std::move(result));
    return true;
  }

  // Returns one task of `worker` to the front of the list, unless a second
  // worker has it, too. The next worker begins the task anew, an answer with
  // its first token: the board keeps no partial results, and a partial answer
  // lives in the session of the worker that samples it (RolloutSession in
  // services/trainer/workers). False if `worker` does not have the task (any
  // more).
  bool Return(int64_t worker, uint64_t id, const absl::Status& why) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return false;
    Entry& entry = found->second;
    if (!TakeBack(id, &entry, worker)) return false;
    if (!entry.leases.empty()) return true;
    pending_.push_front(id);
    if (++entry.attempts >= max_attempts_) {
      Answer(id,
             TaskFailure(why.code(),
                         absl::StrCat("task ",
                                      id,
                                      " was given up after ",
                                      entry.attempts,
                                      " attempts; the last one: ",
                                      std::string(why.message()))));
    }
    return true;
  }

  // Returns the task to the queue, because the worker itself refused it.
  bool Refuse(int64_t worker, uint64_t id, const absl::Status& why) {
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.Find(worker) == nullptr) {
      return false;
    }
    found->second.refused_by.insert(worker);
    return Return(worker, id, why);
  }
  // Returns whether `worker` refused the task before.
  bool HasRefused(int64_t worker, uint64_t id) const {
    const auto found = entries_.find(id);
    return found != entries_.end() && found->second.refused_by.contains(worker);
  }

  // Returns all tasks of `worker`, in the order of their ids, and their number.
  int64_t ReturnAll(int64_t worker, const absl::Status& why) {
    const std::vector<uint64_t> ids = AllOf(worker);
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      Return(worker, *id, why);
    }
    return static_cast<int64_t>(ids.size());
  }

  // Is ReturnAll for a worker that is not to blame: counts no attempt.
  void Recall(int64_t worker) {
    std::vector<uint64_t> ids = AllOf(worker);
    std::erase_if(ids, [&](uint64_t id) {
      Entry& entry = entries_.at(id);
      TakeBack(id, &entry, worker);
      return !entry.leases.empty();
    });
    pending_.insert(pending_.begin(), ids.begin(), ids.end());
  }

  bool has_answer() const { return !answers_.empty(); }
  // Returns the next result, of which there must be one.
  absl::StatusOr<Result> PopAnswer() {
    absl::StatusOr<Result> answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

 private:
  struct Lease {
    int64_t worker;
    absl::Time since;
  };
  struct Entry {
    std::shared_ptr<const Task> task;
    std::vector<Lease> leases;  // none: pending
    std::set<int64_t> refused_by;
    int attempts = 0;

    const Lease* Find(int64_t worker) const {
      for (const Lease& lease : leases) {
        if (lease.worker == worker) return &lease;
      }
      return nullptr;
    }
  };

  // Returns the ids of a worker's tasks, in their order.
  const std::set<uint64_t>& IdsOf(int64_t worker) const {
    static const auto& none = *new std::set<uint64_t>();
    const auto found = by_worker_.find(worker);
    return found == by_worker_.end() ? none : found->second;
  }
  // Returns a copy, which does not change while tasks are returned.
  std::vector<uint64_t> AllOf(int64_t worker) const {
    const std::set<uint64_t>& ids = IdsOf(worker);
    return {ids.begin(), ids.end()};
  }

  void Lend(uint64_t id, Entry* entry, const Lease& lease) {
    Unlist(id, *entry);
    entry->leases.push_back(lease);
    List(id, *entry);
  }
  // Takes a task back from `worker`; returns false if `worker` does not have
  // it.
  bool TakeBack(uint64_t id, Entry* entry, int64_t worker) {
    Unlist(id, *entry);
    const bool had = std::erase_if(entry->leases, [&](const Lease& lease) {
                       return lease.worker == worker;
                     }) > 0;
    List(id, *entry);
    return had;
  }
  // The leases of an entry are changed only between Unlist and List.
  void List(uint64_t id, const Entry& entry) {
    for (const Lease& lease : entry.leases) by_worker_[lease.worker].insert(id);
    if (entry.leases.size() == 1) with_one_.emplace(entry.leases[0].since, id);
  }
  void Unlist(uint64_t id, const Entry& entry) {
    for (const Lease& lease : entry.leases) {
      const auto found = by_worker_.find(lease.worker);
      found->second.erase(id);
      if (found->second.empty()) by_worker_.erase(found);
    }
    if (entry.leases.size() == 1) with_one_.erase({entry.leases[0].since, id});
  }

  const int max_attempts_;
  std::map<uint64_t, Entry> entries_;
  std::map<int64_t, std::set<uint64_t>> by_worker_;     // no empty sets
  std::set<std::pair<absl::Time, uint64_t>> with_one_;  // since when, the id
  std::deque<uint64_t> pending_;
  std::deque<absl::StatusOr<Result>> answers_;
};

}  // namespace dapd
