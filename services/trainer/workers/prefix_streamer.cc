#include "services/trainer/workers/prefix_streamer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {
namespace {

bool Continues(const std::vector<int32_t>& longer,
               const std::vector<int32_t>& shorter) {
  return longer.size() >= shorter.size() &&
         std::equal(shorter.begin(), shorter.end(), longer.begin());
}

}  // namespace

PrefixStreamer::PrefixStreamer(const ViewBuilder& views,
                               TeacherClient& teachers,
                               size_t stride)
    : views_(views), teachers_(teachers), stride_(stride) {}

PrefixStreamer::~PrefixStreamer() {
  {
    MutexLock lock(&mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void PrefixStreamer::Open(uint64_t id,
                          Sample sample,
                          std::vector<ScoreTask> tasks) {
  MutexLock lock(&mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  Answer& answer = answers_[id];
  answer = {std::move(sample), std::move(tasks)};
  Queue(id, answer);
}

void PrefixStreamer::OnTokens(uint64_t id, const std::vector<int32_t>& ids) {
  MutexLock lock(&mutex_);
  const auto found = answers_.find(id);
  if (found == answers_.end()) return;
  Answer& answer = found->second;
  std::vector<int32_t>& known = answer.sample.rollout_ids;
  if (ids.size() < known.size() + stride_ || !Continues(ids, known)) return;
  known.insert(
      known.end(), ids.begin() + static_cast<int64_t>(known.size()), ids.end());
  Queue(id, answer);
}

void PrefixStreamer::Queue(uint64_t id, Answer& answer) {
  if (answer.is_queued) return;
  answer.is_queued = true;
  queue_.push_back(id);
  changed_.NotifyAll();
}

void PrefixStreamer::Run() {
  std::map<uint64_t, Progress> progress;
  while (true) {
    uint64_t id = 0;
    Progress* of_answer = nullptr;
    std::string problem;  // where the prefixes are to be started
    std::string reference;
    std::vector<int32_t> arrived;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !ends_) changed_.Wait(&mutex_);
      if (ends_) return;
      std::erase_if(progress,
                    [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                        mutex_) { return !answers_.contains(entry.first); });
      id = queue_.front();
      queue_.pop_front();
      const auto found = answers_.find(id);
      if (found == answers_.end()) continue;
      found->second.is_queued = false;
      of_answer = &progress[id];
      const Sample& sample = found->second.sample;
      if (!of_answer->prefixes.has_value()) {
        problem = sample.problem;
        reference = sample.reference;
      }
      arrived.assign(
          sample.rollout_ids.begin() + static_cast<int64_t>(of_answer->grown),
          sample.rollout_ids.end());
    }
    if (!of_answer->prefixes.has_value()) {
      auto started = views_.StartPrefixes(problem, reference);
      // Whoever builds the whole views reports the error.
      if (!started.ok()) continue;
      of_answer->prefixes = *std::move(started);
    }
    if (!of_answer->prefixes->Grow(arrived).ok()) continue;
    of_answer->grown += arrived.size();
    MutexLock lock(&mutex_);
    const auto found = answers_.find(id);
    if (found == answers_.end()) continue;
    Tell(found->second, of_answer->prefixes->views());
  }
}

void PrefixStreamer::Tell(Answer& answer, const Views& views) {
  for (ScoreTask& task : answer.tasks) {
    for (auto& [name, view] : task.views) {
      const std::vector<int32_t>& ids =
          views[static_cast<size_t>(name)].input_ids;
      if (Continues(ids, view.input_ids)) view.input_ids = ids;
    }
    teachers_.SubmitPrefix(task);
  }
}

void PrefixStreamer::Close(uint64_t id, bool submitted) {
  MutexLock lock(&mutex_);
  const auto found = answers_.find(id);
  if (found == answers_.end()) return;
  if (!submitted) WithdrawPrefix(found->second);
  answers_.erase(found);
}

void PrefixStreamer::CloseAll() {
  MutexLock lock(&mutex_);
  for (const auto& [id, answer] : answers_) WithdrawPrefix(answer);
  answers_.clear();
}

void PrefixStreamer::WithdrawPrefix(const Answer& answer) {
  for (const ScoreTask& task : answer.tasks) teachers_.WithdrawPrefix(task.id);
}

}  // namespace dapd
