// PrefixBoard: the prefixes of tasks (the parts that are known before a task
// can be computed), and the home of each task: the worker that was sent its
// prefix and should therefore get the task. Pure bookkeeping without threads or
// a clock; a question costs what TaskBoard's questions cost. Not thread-safe:
// the pool's mutex guards it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace dapd {

template <typename Task>
class PrefixBoard {
 public:
  static constexpr int64_t kNobody = -1;

  // A message for a worker.
  struct News {
    uint64_t id = 0;
    std::shared_ptr<const Task> task;  // its prefix; null: it was withdrawn
  };

  // `partial` is the newest prefix of the task `partial.id`.
  void Tell(Task partial) {
    const uint64_t id = partial.id;
    Entry& entry = entries_[id];
    Unlist(id, entry);
    entry.task = std::make_shared<const Task>(std::move(partial));
    entry.is_news = true;
    List(id, entry);
  }

  // Must be called if the task will not be submitted, or goes to another worker
  // than its home.
  void Withdraw(uint64_t id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    if (found->second.home == kNobody) {
      Erase(found);
      return;
    }
    Unlist(id, found->second);
    found->second.task = nullptr;
    found->second.is_news = true;
    List(id, found->second);
  }

  // Must be called when the task itself was submitted: there is no more news of
  // it.
  void Complete(uint64_t id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    Unlist(id, found->second);
    found->second.complete = true;
    found->second.is_news = false;
    List(id, found->second);
  }

  // Must be called when `worker` gets the task.
  void Take(uint64_t id, int64_t worker) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    if (found->second.home == worker) {
      Erase(found);
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
    const auto found = by_home_.find(worker);
    return found == by_home_.end() ? 0
                                   : static_cast<int64_t>(found->second.size());
  }
  // Returns whether there is news of a task without a home.
  bool HasOrphans() const { return news_.contains(kNobody); }

  // Returns the next news for `worker`: of a task whose home it is, or, if
  // `adopts`, of a task without a home, whose home it becomes.
  std::optional<News> Next(int64_t worker, bool adopts) {
    std::optional<uint64_t> id = FirstNews(worker);
    if (const auto orphan = FirstNews(kNobody);
        adopts && orphan.has_value() && (!id.has_value() || *orphan < *id)) {
      id = orphan;
    }
    if (!id.has_value()) return std::nullopt;
    const auto found = entries_.find(*id);
    Unlist(*id, found->second);
    found->second.home = worker;
    found->second.is_news = false;
    List(*id, found->second);
    News news{*id, found->second.task};
    if (news.task == nullptr) Erase(found);
    return news;
  }

  // `worker` has forgotten every prefix: other workers may become the homes.
  void Release(int64_t worker) {
    const auto homes = by_home_.find(worker);
    if (homes == by_home_.end()) return;
    const std::set<uint64_t> ids = homes->second;
    for (const uint64_t id : ids) {
      const auto found = entries_.find(id);
      if (found->second.task == nullptr) {
        Erase(found);
        continue;
      }
      Unlist(id, found->second);
      found->second.home = kNobody;
      found->second.is_news = !found->second.complete;
      List(id, found->second);
    }
  }

 private:
  struct Entry {
    std::shared_ptr<const Task> task;
    int64_t home = kNobody;
    bool is_news = false;
    bool complete = false;
  };

  using Entries = std::map<uint64_t, Entry>;
  using IdsByHome = std::map<int64_t, std::set<uint64_t>>;

  std::optional<uint64_t> FirstNews(int64_t home) const {
    const auto found = news_.find(home);
    if (found == news_.end()) return std::nullopt;
    return *found->second.begin();
  }

  // An entry is changed only between Unlist and List.
  void List(uint64_t id, const Entry& entry) {
    by_home_[entry.home].insert(id);
    if (entry.is_news) news_[entry.home].insert(id);
  }
  void Unlist(uint64_t id, const Entry& entry) {
    Remove(entry.home, id, &by_home_);
    Remove(entry.home, id, &news_);
  }
  static void Remove(int64_t home, uint64_t id, IdsByHome* lists) {
    const auto found = lists->find(home);
    if (found == lists->end()) return;
    found->second.erase(id);
    if (found->second.empty()) lists->erase(found);
  }
  void Erase(typename Entries::iterator entry) {
    Unlist(entry->first, entry->second);
    entries_.erase(entry);
  }

  Entries entries_;
  // Ids by home: of all entries, and of the entries with news. No empty sets.
  IdsByHome by_home_;
  IdsByHome news_;
};

}  // namespace dapd
