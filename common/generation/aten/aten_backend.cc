#include "common/generation/aten/aten_backend.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/generation/available_memory.h"
#include "common/model/reference/decoder.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// Caches are sized in blocks, so that few different shapes occur.
constexpr int64_t kCacheBlock = 64;

// Returns the capacity of a cache that holds `tokens` tokens. Capacities form a
// fixed series: each is an eighth larger than the capacity before, rounded to
// whole blocks.
int64_t CapacityFor(int64_t tokens) {
  int64_t capacity = kCacheBlock;
  while (capacity < tokens) {
    const int64_t more = capacity / 8 / kCacheBlock * kCacheBlock;
    capacity += std::max(more, kCacheBlock);
  }
  return capacity;
}

// Returns whether `take` found the memory that it allocates.
template <typename Take>
bool FindsMemory(const Take& take) {
  try {
    take();
    return true;
  } catch (const c10::Error& error) {
    if (!IsOutOfMemory(error)) throw;
    return false;
  }
}

}  // namespace

struct AtenBackend::Sequence {
  DecodeRequest request;
  KvCache cache;
  bool prefilled = false;
  int32_t last_token = 0;
  int64_t num_sampled = 0;
};

AtenBackend::AtenBackend(DecoderModel model,
                         int64_t slots,
                         int64_t num_tokens,
                         bool kv_float8)
    : model_(std::move(model)), num_tokens_(num_tokens), kv_float8_(kv_float8) {
  slots_.resize(static_cast<size_t>(slots));
}

AtenBackend::~AtenBackend() = default;

int64_t AtenBackend::KvBytes(int64_t tokens) const {
  const ModelConfig& model = weights().config;
  return 2 * model.num_layers * model.num_kv_heads * model.head_dim *
         CapacityFor(tokens) *
         static_cast<int64_t>(c10::elementSize(weights().dtype()));
}

int64_t AtenBackend::DefaultKvBudget() const {
  return weights().device().is_cpu()
             ? AvailableMemory() / 2 / model_.num_ranks()
             : std::numeric_limits<int64_t>::max();
}

void AtenBackend::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  model_.SetAdapter(std::move(adapter));
}

KvCache AtenBackend::TakeCache(int64_t tokens) const {
  return KvCache(weights().config,
                 CapacityFor(tokens),
                 weights().dtype(),
                 weights().device(),
                 kv_float8_);
}

bool AtenBackend::Start(int64_t slot, DecodeRequest request) {
  return FindsMemory([&] {
    KvCache cache = TakeCache(static_cast<int64_t>(request.prompt_ids.size()));
    slots_[static_cast<size_t>(slot)] = std::make_unique<Sequence>(
        Sequence{std::move(request), std::move(cache)});
  });
}

bool AtenBackend::Reserve(int64_t slot, int64_t tokens) {
  return FindsMemory([&] {
    slots_[static_cast<size_t>(slot)]->cache.Grow(CapacityFor(tokens));
  });
}

void AtenBackend::Stop(int64_t slot) {
  slots_[static_cast<size_t>(slot)].reset();
}

DecodedToken AtenBackend::Sample(int64_t slot, const at::Tensor& logits) {
  // Sorting numbers that do not compare (NaN) would read out of bounds.
  TORCH_CHECK(logits.isfinite().all().item<bool>(),
              "[engine] the logits are not finite: the weights that are served "
              "cannot be sampled from");
  Sequence& sequence = *slots_[static_cast<size_t>(slot)];
  const std::span<const float> row(logits.const_data_ptr<float>(),
                                   static_cast<size_t>(logits.numel()));
  const int64_t known = num_tokens_ > 0
                            ? std::min<int64_t>(num_tokens_, logits.numel())
                            : logits.numel();
  DecodedToken token;
  token.slot = slot;
  token.token =
      SampleToken(row,
                  known,
                  sequence.request.sampling,
                  KeyedUniform(sequence.request.key,
                               static_cast<uint32_t>(sequence.num_sampled)));
  token.logprob = LogProbability(row, token.token);
  sequence.last_token = token.token;
  ++sequence.num_sampled;
  return token;
}

std::vector<DecodedToken> AtenBackend::DecodeRunning() {
  at::Tensor ids = at::zeros({num_slots()}, at::kLong);
  std::vector<KvCache*> caches(slots_.size(), nullptr);
  bool any = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == nullptr || !slots_[i]->prefilled) continue;
    ids[static_cast<int64_t>(i)] = slots_[i]->last_token;
    caches[i] = &slots_[i]->cache;
    any = true;
  }
  std::vector<DecodedToken> tokens;
  if (!any) return tokens;
  const at::Tensor hidden =
      model_.ForwardTokens(ids.to(weights().device()), caches);
  const at::Tensor logits = ApplyHead(weights(), hidden).cpu().contiguous();
  for (int64_t slot = 0; slot < num_slots(); ++slot) {
    if (caches[static_cast<size_t>(slot)] == nullptr) continue;
    tokens.push_back(Sample(slot, logits[slot]));
  }
  return tokens;
}

std::vector<DecodedToken> AtenBackend::Step() {
  at::NoGradGuard no_grad;
  std::vector<DecodedToken> tokens = DecodeRunning();
  for (int64_t slot = 0; slot < num_slots(); ++slot) {
    Sequence* sequence = slots_[static_cast<size_t>(slot)].get();
    if (sequence == nullptr || sequence->prefilled) continue;
    const std::vector<int32_t>& prompt = sequence->request.prompt_ids;
    at::Tensor ids =
        at::empty({static_cast<int64_t>(prompt.size())}, at::kLong);
    std::copy(prompt.begin(), prompt.end(), ids.data_ptr<int64_t>());
    const at::Tensor hidden =
        model_.ForwardPrompt(ids.to(weights().device()), &sequence->cache);
    sequence->prefilled = true;
    tokens.push_back(
        Sample(slot, ApplyHead(weights(), hidden)[0].cpu().contiguous()));
  }
  return tokens;
}

std::vector<float> AtenBackend::ScoreTokens(const std::vector<int32_t>& ids) {
  if (kv_float8_) return ScoreByDecoding(ids);
  const at::Tensor logprobs = model_.TokenLogprobs(ids);
  const float* values = logprobs.const_data_ptr<float>();
  return {values, values + logprobs.numel()};
}

std::vector<float> AtenBackend::ScoreByDecoding(
    const std::vector<int32_t>& ids) const {
  at::NoGradGuard no_grad;
  KvCache cache = TakeCache(static_cast<int64_t>(ids.size()));
  std::vector<KvCache*> caches(slots_.size(), nullptr);
  caches[0] = &cache;
  std::vector<float> scored;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    at::Tensor rows = at::zeros({t == 0 ? 1 : num_slots()}, at::kLong);
    rows[0] = ids[t];
    rows = rows.to(weights().device());
    const at::Tensor hidden = t == 0 ? model_.ForwardPrompt(rows, &cache)
                                     : model_.ForwardTokens(rows, caches);
    const at::Tensor logits = ApplyHead(weights(), hidden).cpu().contiguous();
    scored.push_back(LogProbability(
        {logits.const_data_ptr<float>(), static_cast<size_t>(logits.size(1))},
        ids[t + 1]));
  }
  return scored;
}

}  // namespace dapd
