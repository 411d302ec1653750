#include "common/generation/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/tensor/aten.h"

namespace dapd {

GenerationEngine::GenerationEngine(std::unique_ptr<DecodeBackend> backend,
                                   EngineOptions options)
    : backend_(std::move(backend)),
      options_(options),
      kv_memory_bytes_(options.kv_memory_bytes > 0
                           ? options.kv_memory_bytes
                           : backend_->DefaultKvBudget()) {
  slots_.resize(static_cast<size_t>(backend_->num_slots()));
}

void GenerationEngine::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  TORCH_CHECK(num_running() == 0,
              "[engine] the adapter changes while sequences run");
  backend_->SetAdapter(std::move(adapter));
}

absl::Status GenerationEngine::Submit(uint64_t id, DecodeRequest request) {
  const ModelConfig& config = backend_->config();
  const int64_t limit =
      options_.max_length > 0 ? options_.max_length : config.max_positions;
  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (request.sampling.max_new_tokens < 1 || request.MaxTokens() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ",
                     prompt,
                     " tokens and an answer of up to ",
                     request.sampling.max_new_tokens,
                     " do not fit the context of ",
                     limit));
  }
  for (const int32_t token : request.prompt_ids) {
    if (token < 0 || token >= config.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("the prompt holds id ",
                       token,
                       ", outside the vocabulary of ",
                       config.vocab_size));
    }
  }
  const int64_t bytes = backend_->KvBytes(request.MaxTokens());
  if (bytes == DecodeBackend::kTooLong) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ",
                     prompt,
                     " tokens and an answer of up to ",
                     request.sampling.max_new_tokens,
                     " are more than this device's decoder takes, whatever "
                     "its memory; lower rollout.max_new_tokens"));
  }
  if (bytes > kv_memory_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ",
                     prompt,
                     " tokens and an answer of up to ",
                     request.sampling.max_new_tokens,
                     " need ",
                     (bytes >> 20) + 1,
                     " MiB of KV memory, all there is is ",
                     kv_memory_bytes_ >> 20,
                     " MiB; raise rollout.kv_memory_mib or lower "
                     "rollout.max_new_tokens"));
  }
  if (num_free() == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slots_.size(), " slots are taken"));
  }
  waiting_.push_back({id, std::move(request)});
  return absl::OkStatus();
}

void GenerationEngine::StartWaiting() {
  while (!waiting_.empty()) {
    const int64_t bytes =
        backend_->KvBytes(waiting_.front().request.MaxTokens());
    const auto free = std::find(slots_.begin(), slots_.end(), std::nullopt);
    if (free == slots_.end() || kv_bytes_in_use_ + bytes > kv_memory_bytes_) {
      return;
    }
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const Sequence sequence = {
        .id = next.id,
        .kv_bytes = bytes,
        .max_new_tokens = next.request.sampling.max_new_tokens};
    backend_->Start(free - slots_.begin(), std::move(next.request));
    *free = sequence;
    kv_bytes_in_use_ += bytes;
  }
}

void GenerationEngine::Free(int64_t slot) {
  std::optional<Sequence>& sequence = slots_[static_cast<size_t>(slot)];
  backend_->Stop(slot);
  kv_bytes_in_use_ -= sequence->kv_bytes;
  sequence.reset();
}

void GenerationEngine::Cancel(uint64_t id) {
  std::erase_if(waiting_,
                [id](const Waiting& waiting) { return waiting.id == id; });
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].has_value() && slots_[slot]->id == id) {
      Free(static_cast<int64_t>(slot));
    }
  }
}

std::optional<SampledToken> GenerationEngine::Receive(
    const DecodedToken& token) {
  std::optional<Sequence>& sequence = slots_[static_cast<size_t>(token.slot)];
  // A backend that runs ahead computes tokens after the end.
  if (!sequence.has_value()) return std::nullopt;
  ++sequence->num_tokens;
  SampledToken event = {
      .id = sequence->id, .token = token.token, .logprob = token.logprob};
  const std::vector<int64_t>& ends = backend_->config().eos_token_ids;
  if (std::find(ends.begin(), ends.end(), token.token) != ends.end()) {
    event.finish_reason = FinishReason::kEos;
  } else if (sequence->num_tokens >= sequence->max_new_tokens) {
    event.finish_reason = FinishReason::kLength;
  }
  if (event.finish_reason != FinishReason::kNone) Free(token.slot);
  return event;
}

std::vector<SampledToken> GenerationEngine::Step() {
  StartWaiting();
  std::vector<SampledToken> events;
  for (const DecodedToken& token : backend_->Step()) {
    std::optional<SampledToken> event = Receive(token);
    if (event.has_value()) events.push_back(*event);
  }
  return events;
}

int64_t GenerationEngine::num_running() const {
  return std::count_if(slots_.begin(),
                       slots_.end(),
                       [](const std::optional<Sequence>& sequence) {
                         return sequence.has_value();
                       }) +
         static_cast<int64_t>(waiting_.size());
}

int64_t GenerationEngine::num_free() const {
  return static_cast<int64_t>(slots_.size()) - num_running();
}

}  // namespace dapd
