#include "services/trainer/workers/prefix_streamer.h"

#include <algorithm>
#include <utility>

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

void PrefixStreamer::Open(uint64_t id,
                          Sample sample,
                          std::vector<ScoreTask> tasks) {
  MutexLock lock(&mutex_);
  Answer& answer = answers_[id];
  answer = {std::move(sample), std::move(tasks)};
  Tell(answer);
}

void PrefixStreamer::OnTokens(uint64_t id, const std::vector<int32_t>& ids) {
  MutexLock lock(&mutex_);
  const auto found = answers_.find(id);
  if (found == answers_.end()) return;
  Answer& answer = found->second;
  if (ids.size() < answer.told + stride_ ||
      !Continues(ids, answer.sample.rollout_ids)) {
    return;
  }
  answer.sample.rollout_ids = ids;
  Tell(answer);
}

void PrefixStreamer::Tell(Answer& answer) {
  answer.told = answer.sample.rollout_ids.size();
  const absl::StatusOr<Views> views = views_.BuildPrefixes(answer.sample);
  // Whoever builds the whole views reports the error.
  if (!views.ok()) return;
  for (ScoreTask& task : answer.tasks) {
    for (auto& [name, view] : task.views) {
      const std::vector<int32_t>& ids =
          (*views)[static_cast<size_t>(name)].input_ids;
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
