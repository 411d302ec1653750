#include "common/generation/engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/tensor/aten.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// A sequence starts only if it and all running sequences could grow by this
// many tokens: a sequence that had to give way a moment later would have been
// prefilled in vain.
constexpr int64_t kHeadroomTokens = 64;

// Returns the end of an answer that does not fit even alone.
SampledToken NoMemory(uint64_t id, int64_t prompt, int64_t answer) {
  return {.id = id,
          .error = absl::ResourceExhaustedError(absl::StrCat(
              "there is no memory on this device for a prompt of ",
              prompt,
              " tokens and the ",
              answer,
              " tokens of its answer so far, even without other answers; leave "
              "more memory free, or lower rollout.max_new_tokens"))};
}

}  // namespace

GenerationEngine::GenerationEngine(std::unique_ptr<DecodeBackend> backend,
                                   EngineOptions options)
    : backend_(std::move(backend)),
      options_(options),
      budget_(options.kv_memory_bytes > 0 ? options.kv_memory_bytes
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
  if (bytes > budget_.limit_bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a prompt of ",
                     prompt,
                     " tokens and an answer of up to ",
                     request.sampling.max_new_tokens,
                     " need ",
                     (bytes >> 20) + 1,
                     " MiB of KV memory, but there is only ",
                     budget_.limit_bytes() >> 20,
                     " MiB; raise rollout.kv_memory_mib or lower "
                     "rollout.max_new_tokens"));
  }
  if (num_free() == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slots_.size(), " slots are taken"));
  }
  Sequence sequence;
  sequence.id = id;
  sequence.request = std::move(request);
  waiting_.emplace(num_submitted_++, std::move(sequence));
  return absl::OkStatus();
}

int64_t GenerationEngine::PositionsAt(const Sequence& sequence,
                                      int64_t tokens) const {
  const auto prompt = static_cast<int64_t>(sequence.request.prompt_ids.size());
  return std::min(prompt + tokens + backend_->StepPositions(),
                  sequence.request.MaxTokens());
}

int64_t GenerationEngine::KvBytesAt(const Sequence& sequence,
                                    int64_t tokens) const {
  return backend_->KvBytes(PositionsAt(sequence, tokens));
}

void GenerationEngine::GrowRunning(std::vector<SampledToken>* events) {
  for (auto running = running_.begin(); running != running_.end();) {
    if (Grow(running->first, running->second)) {
      ++running;
      continue;
    }
    const auto youngest = std::prev(running_.end());
    const bool is_youngest = running == youngest;
    if (running_.size() > 1) {
      PutBack(youngest);
    } else {
      // A single sequence fits the budget, or Submit would have refused it; so
      // the device itself has no memory.
      Refuse(running, events);
    }
    if (is_youngest) return;
  }
}

bool GenerationEngine::Grow(uint64_t number, Sequence& sequence) {
  const int64_t bytes = KvBytesAt(sequence, sequence.num_given);
  if (bytes <= sequence.kv_bytes) return true;
  if (!budget_.Raise(number, bytes)) return false;
  if (!backend_->Reserve(sequence.slot,
                         PositionsAt(sequence, sequence.num_given))) {
    memory_is_out_ = true;
    return false;
  }
  sequence.kv_bytes = bytes;
  return true;
}

void GenerationEngine::PutBack(Sequences::iterator running) {
  Free(running);
  waiting_.insert(running_.extract(running));
  ++num_restarts_;
}

void GenerationEngine::Refuse(Sequences::iterator running,
                              std::vector<SampledToken>* events) {
  const Sequence& sequence = running->second;
  events->push_back(
      NoMemory(sequence.id,
               static_cast<int64_t>(sequence.request.prompt_ids.size()),
               static_cast<int64_t>(sequence.answer.size())));
  End(running);
}

void GenerationEngine::StartWaiting(std::vector<SampledToken>* events) {
  while (!waiting_.empty()) {
    const auto next = waiting_.begin();
    const auto slot = std::find(slots_.begin(), slots_.end(), std::nullopt);
    if (slot == slots_.end() || !FitsBesideRunning(next->second)) return;
    if (!StartIn(slot - slots_.begin(), next->second)) {
      if (running_.empty()) {
        const Sequence& sequence = next->second;
        events->push_back(
            NoMemory(sequence.id,
                     static_cast<int64_t>(sequence.request.prompt_ids.size()),
                     static_cast<int64_t>(sequence.answer.size())));
        waiting_.erase(next);
        continue;
      }
      memory_is_out_ = true;
      return;
    }
    *slot = next->first;
    const auto tokens = static_cast<int64_t>(next->second.answer.size());
    budget_.Raise(next->first, KvBytesAt(next->second, tokens));
    running_.insert(waiting_.extract(next));
  }
}

bool GenerationEngine::FitsBesideRunning(const Sequence& next) const {
  if (running_.empty()) return true;
  if (memory_is_out_ || running_.size() >= most_running_) return false;
  const auto soon = [this](const Sequence& sequence) {
    const auto tokens = static_cast<int64_t>(sequence.answer.size());
    return KvBytesAt(sequence, tokens + kHeadroomTokens);
  };
  int64_t more = soon(next);
  for (const auto& [number, sequence] : running_) {
    more += std::max<int64_t>(0, soon(sequence) - budget_.held_by(number));
  }
  return budget_.HasRoomFor(more);
}

bool GenerationEngine::StartIn(int64_t slot, Sequence& sequence) {
  const auto tokens = static_cast<int64_t>(sequence.answer.size());
  DecodeRequest request = sequence.request;
  bool found = false;
  if (tokens == 0) {
    found = backend_->Start(slot, std::move(request));
  } else {
    // The whole prompt was scored before the first token.
    request.score_prompt = false;
    found = backend_->Resume(slot, std::move(request), sequence.answer);
  }
  if (!found) return false;
  sequence.slot = slot;
  sequence.num_scores_given = 0;
  sequence.num_given = backend_->ResumesFromTheStart() ? 0 : tokens;
  sequence.kv_bytes = KvBytesAt(sequence, sequence.num_given);
  return true;
}

void GenerationEngine::Free(Sequences::iterator running) {
  const int64_t slot = running->second.slot;
  backend_->Stop(slot);
  slots_[static_cast<size_t>(slot)].reset();
  budget_.Release(running->first);
}

void GenerationEngine::End(Sequences::iterator running) {
  Free(running);
  running_.erase(running);
  memory_is_out_ = false;
  if (waiting_.empty()) most_running_ = kNoLimit;
}

void GenerationEngine::Cancel(uint64_t id) {
  const auto has_id = [id](const Sequences::value_type& sequence) {
    return sequence.second.id == id;
  };
  std::erase_if(waiting_, has_id);
  const auto found = std::find_if(running_.begin(), running_.end(), has_id);
  if (found != running_.end()) End(found);
}

std::optional<SampledToken> GenerationEngine::Receive(
    const DecodedToken& token) {
  const std::optional<uint64_t> number =
      slots_[static_cast<size_t>(token.slot)];
  // A backend that runs ahead computes tokens after the end.
  if (!number.has_value()) return std::nullopt;
  const auto found = running_.find(*number);
  Sequence& sequence = found->second;
  if (token.prompt_top.has_value()) return ReceiveScore(token, sequence);
  const auto index = static_cast<size_t>(sequence.num_given++);
  if (index < sequence.answer.size()) {
    TORCH_CHECK(
        token.token == sequence.answer[index],
        "[engine] an answer that was stopped for lack of KV memory came out "
        "differently the second time, at token ",
        index,
        ": this device does not reproduce its results bit for bit; raise "
        "rollout.kv_memory_mib or lower rollout.slots");
    return std::nullopt;
  }
  sequence.answer.push_back(token.token);
  SampledToken event = {
      .id = sequence.id, .token = token.token, .logprob = token.logprob};
  const std::vector<int64_t>& ends = backend_->config().eos_token_ids;
  if (std::find(ends.begin(), ends.end(), token.token) != ends.end()) {
    event.finish_reason = FinishReason::kEos;
  } else if (static_cast<int64_t>(sequence.answer.size()) >=
             sequence.request.sampling.max_new_tokens) {
    event.finish_reason = FinishReason::kLength;
  }
  if (event.finish_reason != FinishReason::kNone) End(found);
  return event;
}

std::optional<SampledToken> GenerationEngine::ReceiveScore(
    const DecodedToken& token, Sequence& sequence) {
  TORCH_CHECK(std::isfinite(token.logprob),
              "[engine] the logits of a prompt are not finite: the weights "
              "that are served cannot score it");
  if (++sequence.num_scores_given <= sequence.num_scored) return std::nullopt;
  ++sequence.num_scored;
  return SampledToken{.id = sequence.id,
                      .token = token.token,
                      .logprob = token.logprob,
                      .prompt_top = token.prompt_top};
}

std::vector<DecodedToken> GenerationEngine::Compute(
    std::vector<SampledToken>* events) {
  if (running_.empty()) return {};
  try {
    return backend_->Step();
  } catch (const c10::Error& error) {
    if (!IsOutOfMemory(error)) throw;
  }
  if (running_.size() == 1) {
    Refuse(running_.begin(), events);
    return {};
  }
  // It is not known how far each of them got.
  most_running_ = running_.size() / 2;
  LogWarning(absl::StrCat("not enough memory for ",
                          running_.size(),
                          " answers side by side; they are started again, ",
                          most_running_,
                          " at a time. Lower rollout.slots or "
                          "rollout.kv_memory_mib"));
  while (!running_.empty()) PutBack(std::prev(running_.end()));
  return {};
}

std::vector<SampledToken> GenerationEngine::Step() {
  std::vector<SampledToken> events;
  GrowRunning(&events);
  StartWaiting(&events);
  for (const DecodedToken& token : Compute(&events)) {
    std::optional<SampledToken> event = Receive(token);
    if (event.has_value()) events.push_back(*event);
  }
  return events;
}

int64_t GenerationEngine::num_running() const {
  return static_cast<int64_t>(running_.size() + waiting_.size());
}

int64_t GenerationEngine::num_free() const {
  return static_cast<int64_t>(slots_.size()) - num_running();
}

KvUse GenerationEngine::kv_use() const {
  return {.bytes = budget_.bytes(),
          .limit_bytes = budget_.limit_bytes(),
          .restarts = num_restarts_};
}

}  // namespace dapd
