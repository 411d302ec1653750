#include "common/generation/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/model/decoder.h"
#include "common/model/kv_cache.h"

namespace dapd {
namespace {

// Caches are sized in blocks, so that few different shapes occur.
constexpr int64_t kCacheBlock = 64;

int64_t RoundUp(int64_t tokens) {
  return (tokens + kCacheBlock - 1) / kCacheBlock * kCacheBlock;
}

}  // namespace

struct GenerationEngine::Sequence {
  GenerationInput input;
  KvCache cache;
  bool prefilled = false;
  int32_t last_token = 0;
  int64_t num_sampled = 0;
  bool done = false;
};

GenerationEngine::GenerationEngine(std::shared_ptr<const ModelWeights> weights,
                                   EngineOptions options)
    : weights_(std::move(weights)), options_(options) {
  slots_.resize(static_cast<size_t>(options_.slots));
}

GenerationEngine::~GenerationEngine() = default;

void GenerationEngine::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  TORCH_CHECK(num_running() == 0,
              "[engine] the adapter changes while sequences run");
  adapter_ = std::move(adapter);
}

absl::Status GenerationEngine::Submit(GenerationInput input) {
  const ModelConfig& config = weights_->config;
  const int64_t limit =
      options_.max_length > 0 ? options_.max_length : config.max_positions;
  const auto prompt = static_cast<int64_t>(input.prompt_ids.size());
  if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (input.sampling.max_new_tokens < 1 ||
      prompt + input.sampling.max_new_tokens > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ",
                     prompt,
                     " tokens and an answer of up to ",
                     input.sampling.max_new_tokens,
                     " do not fit the context of ",
                     limit));
  }
  for (const int32_t id : input.prompt_ids) {
    if (id < 0 || id >= config.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("the prompt holds id ",
                       id,
                       ", outside the vocabulary of ",
                       config.vocab_size));
    }
  }
  const auto slot = std::find(slots_.begin(), slots_.end(), nullptr);
  if (slot == slots_.end()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.slots, " slots are taken"));
  }
  KvCache cache(config,
                RoundUp(prompt + input.sampling.max_new_tokens),
                weights_->dtype(),
                weights_->device());
  *slot =
      std::make_unique<Sequence>(Sequence{std::move(input), std::move(cache)});
  return absl::OkStatus();
}

void GenerationEngine::Cancel(uint64_t id) {
  for (auto& slot : slots_) {
    if (slot != nullptr && slot->input.id == id) slot.reset();
  }
}

TokenEvent GenerationEngine::SampleNext(Sequence& sequence,
                                        const at::Tensor& logits) {
  // Sorting what does not compare would read past its ends.
  TORCH_CHECK(logits.isfinite().all().item<bool>(),
              "[engine] the logits are not finite: the weights that are served "
              "cannot be sampled from");
  const std::span<const float> row(logits.data_ptr<float>(),
                                   static_cast<size_t>(logits.numel()));
  const SamplingParams& sampling = sequence.input.sampling;
  const int64_t known =
      options_.num_tokens > 0
          ? std::min<int64_t>(options_.num_tokens, logits.numel())
          : logits.numel();
  TokenEvent event;
  event.id = sequence.input.id;
  event.token =
      SampleToken(row,
                  known,
                  sampling,
                  KeyedUniform(sequence.input.key,
                               static_cast<uint32_t>(sequence.num_sampled)));
  event.logprob = LogProbability(row, event.token);
  sequence.last_token = event.token;
  ++sequence.num_sampled;
  const std::vector<int64_t>& ends = weights_->config.eos_token_ids;
  if (std::find(ends.begin(), ends.end(), event.token) != ends.end()) {
    event.finish = FinishReason::kEos;
  } else if (sequence.num_sampled >= sampling.max_new_tokens) {
    event.finish = FinishReason::kLength;
  }
  sequence.done = event.finish != FinishReason::kNone;
  return event;
}

std::vector<TokenEvent> GenerationEngine::DecodeRunning() {
  at::Tensor ids = at::zeros({options_.slots}, at::kLong);
  std::vector<KvCache*> caches(slots_.size(), nullptr);
  bool any = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == nullptr || !slots_[i]->prefilled) continue;
    ids[static_cast<int64_t>(i)] = slots_[i]->last_token;
    caches[i] = &slots_[i]->cache;
    any = true;
  }
  std::vector<TokenEvent> events;
  if (!any) return events;
  const at::Tensor hidden = ForwardTokens(
      *weights_, adapter_.get(), ids.to(weights_->device()), caches);
  const at::Tensor logits = ApplyHead(*weights_, hidden).cpu().contiguous();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (caches[i] == nullptr) continue;
    events.push_back(SampleNext(*slots_[i], logits[static_cast<int64_t>(i)]));
  }
  return events;
}

std::vector<TokenEvent> GenerationEngine::Step() {
  at::NoGradGuard no_grad;
  std::vector<TokenEvent> events = DecodeRunning();
  for (auto& slot : slots_) {
    if (slot == nullptr || slot->prefilled) continue;
    at::Tensor ids = at::empty(
        {static_cast<int64_t>(slot->input.prompt_ids.size())}, at::kLong);
    std::copy(slot->input.prompt_ids.begin(),
              slot->input.prompt_ids.end(),
              ids.data_ptr<int64_t>());
    const at::Tensor hidden = ForwardPrompt(
        *weights_, adapter_.get(), ids.to(weights_->device()), &slot->cache);
    slot->prefilled = true;
    events.push_back(
        SampleNext(*slot, ApplyHead(*weights_, hidden)[0].cpu().contiguous()));
  }
  for (auto& slot : slots_) {
    if (slot != nullptr && slot->done) slot.reset();
  }
  return events;
}

int64_t GenerationEngine::num_running() const {
  return static_cast<int64_t>(slots_.size()) - num_free();
}

int64_t GenerationEngine::num_free() const {
  return std::count(slots_.begin(), slots_.end(), nullptr);
}

}  // namespace dapd
