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
                                          : backend_->DefaultKvBudget()),
      host_budget_(
          options.swap_memory_bytes.value_or(backend_->DefaultSwapBudget())) {
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
                     " MiB; raise rollout.kv_memory_mib (--kv-memory-mib) or "
                     "lower rollout.max_new_tokens (--max-new-tokens)"));
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
  if (!SwapOut(running->first, running->second)) return Restart(running);
  waiting_.insert(running_.extract(running));
}

void GenerationEngine::Restart(Sequences::iterator running) {
  Free(running);
  waiting_.insert(running_.extract(running));
  ++num_restarts_;
}

bool GenerationEngine::SwapOut(uint64_t number, Sequence& sequence) {
  if (!host_budget_.HasRoomFor(sequence.kv_bytes)) return false;
  const int64_t bytes = backend_->SwapOut(sequence.slot, number);
  if (bytes == 0) return false;
  host_budget_.Raise(number, bytes);
  sequence.is_swapped = true;
  Charge({.swaps = 1, .swapped_bytes = bytes}, sequence);
  Leave(number, sequence);
  return true;
}

void GenerationEngine::Drop(Sequences::iterator waiting) {
  if (waiting->second.is_swapped) {
    backend_->DropSwapped(waiting->first);
    host_budget_.Release(waiting->first);
  }
  waiting_.erase(waiting);
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
    if (!StartIn(slot - slots_.begin(), next->first, next->second)) {
      if (running_.empty()) {
        const Sequence& sequence = next->second;
        events->push_back(
            NoMemory(sequence.id,
                     static_cast<int64_t>(sequence.request.prompt_ids.size()),
                     static_cast<int64_t>(sequence.answer.size())));
        Drop(next);
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

bool GenerationEngine::FitsBesideRunning(const Sequence& next) {
  if (running_.empty()) return true;
  if (memory_is_out_ || running_.size() >= most_running_) return false;
  std::vector<const Sequence*> sequences = {&next};
  for (const auto& [number, sequence] : running_) {
    sequences.push_back(&sequence);
  }
  memory_is_out_ =
      ExpectedPeak(sequences) > static_cast<double>(budget_.limit_bytes());
  return !memory_is_out_;
}

std::vector<int64_t> GenerationEngine::OpenLengths() const {
  std::vector<int64_t> lengths;
  for (const Sequences* sequences : {&running_, &waiting_}) {
    for (const auto& [number, sequence] : *sequences) {
      lengths.push_back(static_cast<int64_t>(sequence.answer.size()));
    }
  }
  return lengths;
}

double GenerationEngine::ExpectedPeak(
    std::span<const Sequence* const> sequences) const {
  const auto length = [](const Sequence& sequence) {
    return static_cast<int64_t>(sequence.answer.size());
  };
  double peak = 0;
  int64_t longest = 0;  // steps that a sequence may still take
  for (const Sequence* each : sequences) {
    peak +=
        static_cast<double>(KvBytesAt(*each, length(*each) + kHeadroomTokens));
    longest = std::max(longest,
                       each->request.sampling.max_new_tokens - length(*each));
  }
  if (!forecast_.is_known()) return peak;
  const LengthForecast::Curve curve = forecast_.Estimate(OpenLengths());
  for (int64_t steps = kHeadroomTokens; steps < longest; steps += steps / 4) {
    double mean = 0;
    double variance = 0;
    for (const Sequence* each : sequences) {
      const int64_t tokens = length(*each) + steps;
      if (tokens >= each->request.sampling.max_new_tokens) continue;
      const double runs =
          curve.ShareAbove(tokens) / curve.ShareAbove(length(*each));
      const auto bytes = static_cast<double>(KvBytesAt(*each, tokens));
      mean += runs * bytes;
      variance += runs * (1 - runs) * bytes * bytes;
    }
    peak = std::max(peak, mean + std::sqrt(variance));
  }
  return peak;
}

bool GenerationEngine::SwapIn(int64_t slot,
                              uint64_t number,
                              Sequence& sequence) {
  if (!backend_->SwapIn(
          slot, number, PositionsAt(sequence, sequence.num_given))) {
    return false;
  }
  host_budget_.Release(number);
  sequence.is_swapped = false;
  sequence.slot = slot;
  sequence.kv_bytes = KvBytesAt(sequence, sequence.num_given);
  return true;
}

bool GenerationEngine::StartIn(int64_t slot,
                               uint64_t number,
                               Sequence& sequence) {
  if (sequence.is_swapped) return SwapIn(slot, number, sequence);
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
  // A backend that does not resume from the start prefills the answer.
  Charge({.recomputed_tokens = sequence.num_given}, sequence);
  sequence.kv_bytes = KvBytesAt(sequence, sequence.num_given);
  return true;
}

void GenerationEngine::Charge(const MemoryCost& cost, Sequence& sequence) {
  sequence.cost += cost;
  cost_ += cost;
}

void GenerationEngine::Leave(uint64_t number, const Sequence& sequence) {
  slots_[static_cast<size_t>(sequence.slot)].reset();
  budget_.Release(number);
}

void GenerationEngine::Free(Sequences::iterator running) {
  backend_->Stop(running->second.slot);
  Leave(running->first, running->second);
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
  const auto waits = std::ranges::find_if(waiting_, has_id);
  if (waits != waiting_.end()) Drop(waits);
  const auto runs = std::ranges::find_if(running_, has_id);
  if (runs != running_.end()) End(runs);
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
    Charge({.recomputed_tokens = 1}, sequence);
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
  if (event.finish_reason == FinishReason::kNone) return event;
  forecast_.Add(static_cast<int64_t>(sequence.answer.size()));
  event.cost = sequence.cost;
  End(found);
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
  while (!running_.empty()) Restart(std::prev(running_.end()));
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
          .restarts = num_restarts_,
          .cost = cost_,
          .host_bytes = host_budget_.bytes()};
}

}  // namespace dapd
