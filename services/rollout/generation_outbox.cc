#include "services/rollout/generation_outbox.h"

#include <algorithm>
#include <utility>

#include "common/base/steady_time.h"
#include "common/generation/decode_request_message.h"
#include "common/rpc/status_conversion.h"

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
  // Only the last message of a request grows: it may have been opened again.
  const auto last =
      std::find_if(messages_.rbegin(), messages_.rend(), [&](const auto& m) {
        return m.request_id() == request_id;
      });
  v1::TokensSampled* tokens = nullptr;
  if (last != messages_.rend() && last->has_tokens()) {
    tokens = last->mutable_tokens();
  } else {
    tokens = AddMessage(request_id).mutable_tokens();
    tokens->set_first_index(index);
  }
  tokens->add_ids(token);
  tokens->add_logprobs(logprob);
  changed_.NotifyAll();
}

void GenerationOutbox::Finish(uint64_t request_id,
                              FinishReason finish_reason,
                              uint32_t num_tokens,
                              const ServedPolicy& policy,
                              const SampleTimes& times,
                              const MemoryCost& cost) {
  MutexLock lock(&mutex_);
  if (open_.erase(request_id) == 0) return;
  v1::GenerationFinished& finished = *AddMessage(request_id).mutable_finished();
  finished.set_reason(finish_reason == FinishReason::kEos
                          ? v1::GenerationFinished::REASON_EOS
                          : v1::GenerationFinished::REASON_LENGTH);
  finished.set_num_tokens(num_tokens);
  finished.set_policy_version(policy.version);
  finished.set_adapter_digest(policy.digest);
  v1::SampleTimes& sent = *finished.mutable_times();
  sent.set_arrived(absl::ToUnixNanos(times.arrived));
  sent.set_started(absl::ToUnixNanos(times.started));
  sent.set_first_token(absl::ToUnixNanos(times.first_token));
  sent.set_ended(absl::ToUnixNanos(times.ended));
  sent.set_slot(times.slot);
  WriteCost(cost, finished.mutable_memory_cost());
  changed_.NotifyAll();
}

void GenerationOutbox::Fail(uint64_t request_id, const absl::Status& error) {
  MutexLock lock(&mutex_);
  if (open_.erase(request_id) == 0) return;
  v1::GenerationFailed& failed = *AddMessage(request_id).mutable_failed();
  failed.set_code(static_cast<int>(error.code()));
  failed.set_message(WireMessage(error));
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
  messages_.clear();
  changed_.NotifyAll();
}

std::optional<v1::GenerateResponse> GenerationOutbox::PopFor(
    absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(&mutex_);
  while (messages_.empty() && !IsDone() && SteadyNow() < deadline) {
    changed_.WaitFor(&mutex_, deadline - SteadyNow());
  }
  if (messages_.empty()) return std::nullopt;
  std::optional<v1::GenerateResponse> message = std::move(messages_.front());
  messages_.pop_front();
  changed_.NotifyAll();
  return message;
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
  return messages_.empty() && IsDone();
}

v1::GenerateResponse& GenerationOutbox::AddMessage(uint64_t request_id) {
  v1::GenerateResponse& message = messages_.emplace_back();
  message.set_request_id(request_id);
  return message;
}

bool GenerationOutbox::HasRoom() const {
  return abandoned_ || messages_.size() < kMaxUntaken;
}

bool GenerationOutbox::IsDone() const {
  return abandoned_ || (closing_ && open_.empty());
}

}  // namespace dapd
