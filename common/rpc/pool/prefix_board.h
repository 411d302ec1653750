// PrefixBoard: the prefixes of tasks, that is what is known of a task before it
// can be done, and the worker that each such task has its home with: the one
// that was sent its prefix, and so best gets the task. Pure bookkeeping, like
// TaskBoard; the pool's mutex guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace dapd {

template <typename Task>
class PrefixBoard {
 public:
  static constexpr int64_t kNobody = -1;

  // A piece of news for a worker.
  struct News {
    uint64_t id = 0;
    std::shared_ptr<const Task> task;  // as far as it is known; null: withdrawn
  };

  // The task `partial.id` is known this far.
  void Tell(Task partial) {
    Entry& entry = entries_[partial.id];
    entry.task = std::make_shared<const Task>(std::move(partial));
    entry.is_news = true;
  }

  // The task will not come, or not to its home.
  void Withdraw(uint64_t id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    if (found->second.home == kNobody) {
      entries_.erase(found);
      return;
    }
    found->second.task = nullptr;
    found->second.is_news = true;
  }

  // The task itself is there: no more news of it.
  void Complete(uint64_t id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    found->second.complete = true;
    found->second.is_news = false;
  }

  // The task is given to `worker`.
  void Take(uint64_t id, int64_t worker) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    if (found->second.home == worker) {
      entries_.erase(found);
    } else {
      Withdraw(id);
    }
  }

  int64_t Home(uint64_t id) const {
    const auto found = entries_.find(id);
    return found == entries_.end() ? kNobody : found->second.home;
  }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t Homes(int64_t worker) const {
    return std::count_if(entries_.begin(), entries_.end(), [&](const auto& e) {
      return e.second.home == worker;
    });
  }

  // The next news for `worker`: of a task with its home there or, if `adopts`,
  // with none, which it gets.
  std::optional<News> Next(int64_t worker, bool adopts) {
    for (auto& [id, entry] : entries_) {
      const bool own = entry.home == worker;
      if (!entry.is_news || !(own || (adopts && entry.home == kNobody))) {
        continue;
      }
      entry.home = worker;
      entry.is_news = false;
      News news{id, entry.task};
      if (news.task == nullptr) entries_.erase(id);
      return news;
    }
    return std::nullopt;
  }

  // `worker` has forgotten all: another one may be told from the start.
  void Release(int64_t worker) {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if (entry->second.home != worker) {
        ++entry;
      } else if (entry->second.task == nullptr) {
        entry = entries_.erase(entry);
      } else {
        entry->second.home = kNobody;
        entry->second.is_news = !entry->second.complete;
        ++entry;
      }
    }
  }

 private:
  struct Entry {
    std::shared_ptr<const Task> task;
    int64_t home = kNobody;
    bool is_news = false;
    bool complete = false;
  };

  std::map<uint64_t, Entry> entries_;
};

}  // namespace dapd
