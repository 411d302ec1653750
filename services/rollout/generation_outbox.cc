#include "services/rollout/generation_outbox.h"

#include <algorithm>
#include <utility>

#include "common/base/steady_time.h"

namespace dapd {

bool GenerationOutbox::Open(uint64_t request_id) {
  MutexLock lock(&mutex_);
  return open_.insert(request_id).second;
}

void GenerationOutbox::AddToken(uint64_t request_id,
                                uint32_t index,
                                int32_t token,
                                float logprob) {
  MutexLock lock(&mutex_);
  if (!open_.contains(request_id)) return;
  auto event = std::find_if(events_.begin(), events_.end(), [&](const auto& e) {
    return e.request_id == request_id;
  });
  if (event == events_.end()) {
    GenerationEvent fresh;
    fresh.request_id = request_id;
    fresh.first_index = index;
    event = events_.insert(events_.end(), std::move(fresh));
  }
  event->ids.push_back(token);
  event->logprobs.push_back(logprob);
  changed_.NotifyAll();
}

void GenerationOutbox::Finish(uint64_t request_id,
                              FinishReason finish_reason,
                              uint32_t num_tokens,
                              const ServedPolicy& policy,
                              const SampleTimes& times) {
  MutexLock lock(&mutex_);
  if (open_.erase(request_id) == 0) return;
  GenerationEvent event;
  event.request_id = request_id;
  event.kind = GenerationEvent::Kind::kFinished;
  event.finish_reason = finish_reason;
  event.num_tokens = num_tokens;
  event.policy = policy;
  event.times = times;
  events_.push_back(std::move(event));
  changed_.NotifyAll();
}

void GenerationOutbox::Fail(uint64_t request_id, const absl::Status& error) {
  MutexLock lock(&mutex_);
  if (open_.erase(request_id) == 0) return;
  GenerationEvent event;
  event.request_id = request_id;
  event.kind = GenerationEvent::Kind::kFailed;
  event.error = error;
  events_.push_back(std::move(event));
  changed_.NotifyAll();
}

void GenerationOutbox::CloseWhenAnswered() {
  MutexLock lock(&mutex_);
  closing_ = true;
  changed_.NotifyAll();
}

void GenerationOutbox::Abandon() {
  MutexLock lock(&mutex_);
  abandoned_ = true;
  open_.clear();
  events_.clear();
  changed_.NotifyAll();
}

std::optional<GenerationEvent> GenerationOutbox::PopFor(
    absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(&mutex_);
  while (events_.empty() && !IsDone() && SteadyNow() < deadline) {
    changed_.WaitFor(&mutex_, deadline - SteadyNow());
  }
  if (events_.empty()) return std::nullopt;
  std::optional<GenerationEvent> event = std::move(events_.front());
  events_.pop_front();
  changed_.NotifyAll();
  return event;
}

bool GenerationOutbox::HasRoomWithin(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(&mutex_);
  while (!HasRoom() && SteadyNow() < deadline) {
    changed_.WaitFor(&mutex_, deadline - SteadyNow());
  }
  return HasRoom();
}

bool GenerationOutbox::done() const {
  MutexLock lock(&mutex_);
  return events_.empty() && IsDone();
}

bool GenerationOutbox::HasRoom() const {
  return abandoned_ || events_.size() < kMaxUntaken;
}

bool GenerationOutbox::IsDone() const {
  return abandoned_ || (closing_ && open_.empty());
}

}  // namespace dapd
