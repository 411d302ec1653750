#include "services/trainer/workers/open_answers.h"

#include <algorithm>
#include <utility>

namespace dapd {
namespace {

bool Continues(const std::vector<int32_t>& longer,
               const std::vector<int32_t>& shorter) {
  return longer.size() >= shorter.size() &&
         std::equal(shorter.begin(), shorter.end(), longer.begin());
}

// Returns whether `count` tokens are at least a stride more than `before`.
bool IsStride(size_t count, size_t before, int64_t stride) {
  return stride > 0 && count >= before + static_cast<size_t>(stride);
}

}  // namespace

OpenAnswers::OpenAnswers(const ViewBuilder& views,
                         TeacherClient& teachers,
                         Strides strides)
    : views_(views), teachers_(teachers), strides_(strides) {}

OpenAnswers::~OpenAnswers() {
  {
    MutexLock lock(&mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void OpenAnswers::Open(uint64_t id, Beginning beginning) {
  MutexLock lock(&mutex_);
  Answer& answer = answers_[id];
  answer = {std::move(beginning)};
  if (answer.beginning.tasks.empty()) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  Queue(id, answer);
}

void OpenAnswers::OnTokens(uint64_t id, const std::vector<int32_t>& ids) {
  MutexLock lock(&mutex_);
  const auto found = answers_.find(id);
  if (found == answers_.end()) return;
  Answer& answer = found->second;
  const bool tells =
      !answer.beginning.tasks.empty() &&
      IsStride(ids.size(), answer.for_teachers, strides_.teachers);
  const bool shows = IsStride(ids.size(), answer.for_trainer, strides_.trainer);
  if ((!tells && !shows) || !Continues(ids, answer.ids)) return;
  answer.ids.insert(answer.ids.end(),
                    ids.begin() + static_cast<int64_t>(answer.ids.size()),
                    ids.end());
  if (shows) answer.for_trainer = ids.size();
  if (!tells) return;
  answer.for_teachers = ids.size();
  Queue(id, answer);
}

void OpenAnswers::Queue(uint64_t id, Answer& answer) {
  if (answer.is_queued) return;
  answer.is_queued = true;
  queue_.push_back(id);
  changed_.NotifyAll();
}

std::vector<int32_t> OpenAnswers::PrefixOf(uint64_t id) const {
  MutexLock lock(&mutex_);
  const auto found = answers_.find(id);
  if (found == answers_.end()) return {};
  const Answer& answer = found->second;
  std::vector<int32_t> prefix = answer.beginning.prompt;
  prefix.insert(prefix.end(),
                answer.ids.begin(),
                answer.ids.begin() + static_cast<int64_t>(answer.for_trainer));
  return prefix;
}

void OpenAnswers::Run() {
  std::map<uint64_t, Progress> progress;
  while (true) {
    uint64_t id = 0;
    Progress* of_answer = nullptr;
    std::string problem;  // of an answer whose views are to be started
    std::string reference;
    std::shared_ptr<const RowMaterial> material;
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
      Answer& answer = found->second;
      answer.is_queued = false;
      of_answer = &progress[id];
      if (!of_answer->views.has_value()) {
        problem = answer.beginning.problem;
        reference = answer.beginning.reference;
        material = answer.beginning.material;
      }
      arrived.assign(
          answer.ids.begin() + static_cast<int64_t>(of_answer->grown),
          answer.ids.begin() + static_cast<int64_t>(answer.for_teachers));
    }
    if (!of_answer->views.has_value()) {
      auto started = views_.StartViews({problem, material.get()}, reference);
      // The builder of the complete views will report the error.
      if (!started.ok()) continue;
      of_answer->views = *std::move(started);
    }
    if (!of_answer->views->Grow(arrived).ok()) continue;
    of_answer->grown += arrived.size();
    MutexLock lock(&mutex_);
    const auto found = answers_.find(id);
    if (found == answers_.end()) continue;
    Announce(found->second, of_answer->views->views());
  }
}

void OpenAnswers::Announce(Answer& answer, const Views& views) {
  for (ScoreTask& task : answer.beginning.tasks) {
    for (auto& [name, view] : task.views) {
      const std::vector<int32_t>& ids =
          views[static_cast<size_t>(name)].input_ids;
      if (Continues(ids, view.input_ids)) view.input_ids = ids;
    }
    teachers_.SubmitPrefix(task);
  }
}

void OpenAnswers::Close(uint64_t id, bool submitted) {
  MutexLock lock(&mutex_);
  const auto found = answers_.find(id);
  if (found == answers_.end()) return;
  if (!submitted) Withdraw(found->second);
  answers_.erase(found);
}

void OpenAnswers::CloseAll() {
  MutexLock lock(&mutex_);
  for (const auto& [id, answer] : answers_) Withdraw(answer);
  answers_.clear();
}

void OpenAnswers::Withdraw(const Answer& answer) {
  for (const ScoreTask& task : answer.beginning.tasks) {
    teachers_.WithdrawPrefix(task.id);
  }
}

}  // namespace dapd
