#include "common/generation/cpu/cpu_decode_backend.h"

#include <algorithm>
#include <new>
#include <utility>

#include "common/generation/available_memory.h"
#include "common/generation/choose_token.h"
#include "common/kernels/parallel_for.h"

namespace dapd {
namespace {
// The number of rows of logits that are scored at a time.
constexpr int64_t kScoredRows = 32;
}  // namespace

CpuDecodeBackend::CpuDecodeBackend(std::shared_ptr<const CpuModel> model,
                                   const CpuDecodeBackendOptions& options)
    : model_(std::move(model)),
      options_(options),
      kernels_(DecodeKernelsOf(options.level)),
      decoder_(model_, kernels_) {
  slots_.resize(static_cast<size_t>(options_.slots));
}

int64_t CpuDecodeBackend::KvBytes(int64_t tokens) const {
  return CpuKvCache::Bytes(
      model_->config, tokens, model_->dtype == at::kBFloat16);
}

int64_t CpuDecodeBackend::DefaultKvBudget() const {
  return AvailableMemory() / 2;
}

int64_t CpuDecodeBackend::DefaultSwapBudget() const {
  return AvailableMemory() / 4;
}

void CpuDecodeBackend::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  // A failure may leave half of the old adapter and half of the new adapter.
  packed_ = false;
  if (adapter == nullptr) {
    adapter_.reset();
  } else {
    adapter_ =
        PackAdapter(*adapter,
                    model_->config,
                    adapter_.has_value() ? *std::move(adapter_) : CpuAdapter());
  }
  packed_ = true;
}

const CpuAdapter* CpuDecodeBackend::AdapterInUse() const {
  TORCH_CHECK(packed_,
              "[engine] the last adapter could not be loaded: load one before "
              "anything is sampled");
  return adapter_.has_value() ? &*adapter_ : nullptr;
}

bool CpuDecodeBackend::Start(int64_t slot, DecodeRequest request) {
  return Resume(slot, std::move(request), {});
}

bool CpuDecodeBackend::Resume(int64_t slot,
                              DecodeRequest request,
                              std::vector<int32_t> answer) {
  const int64_t capacity = request.MaxTokens();
  std::vector<int32_t> prompt = std::move(request.prompt_ids);
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  try {
    slots_[static_cast<size_t>(slot)] = std::make_unique<Sequence>(
        Sequence{.prompt = std::move(prompt),
                 .sampling = request.sampling,
                 .key = request.key,
                 .cache = CpuKvCache(
                     model_->config, capacity, model_->dtype == at::kBFloat16),
                 .num_sampled = static_cast<int64_t>(answer.size())});
  } catch (const std::bad_alloc&) {
    return false;
  }
  prefilling_.push_back(slot);
  return true;
}

void CpuDecodeBackend::Stop(int64_t slot) {
  slots_[static_cast<size_t>(slot)].reset();
  std::erase(prefilling_, slot);
}

int64_t CpuDecodeBackend::SwapOut(int64_t slot, uint64_t key) {
  std::unique_ptr<Sequence>& sequence = slots_[static_cast<size_t>(slot)];
  if (!sequence->is_running) {
    Stop(slot);
    return 0;
  }
  const int64_t bytes = KvBytes(sequence->cache.length());
  swapped_[key] = std::move(sequence);
  return bytes;
}

bool CpuDecodeBackend::SwapIn(int64_t slot, uint64_t key, int64_t /*tokens*/) {
  const auto kept = swapped_.extract(key);
  slots_[static_cast<size_t>(slot)] = std::move(kept.mapped());
  return true;
}

int64_t CpuDecodeBackend::KnownTokens() const {
  const int64_t vocabulary = model_->config.vocab_size;
  return options_.num_tokens > 0 ? std::min(options_.num_tokens, vocabulary)
                                 : vocabulary;
}

std::vector<CpuDecodeBackend::Piece> CpuDecodeBackend::PlanStep() {
  std::vector<Piece> pieces;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    Sequence* sequence = slots_[slot].get();
    if (sequence == nullptr || !sequence->is_running) continue;
    pieces.push_back({static_cast<int64_t>(slot),
                      {&sequence->cache, std::span(&sequence->last_token, 1)},
                      true});
  }
  // Running sequences alone may fill the budget; prompts must still advance.
  int64_t budget = std::max<int64_t>(
      1, options_.step_tokens - static_cast<int64_t>(pieces.size()));
  while (!prefilling_.empty() && budget > 0) {
    const int64_t slot = prefilling_.front();
    Sequence& sequence = *slots_[static_cast<size_t>(slot)];
    const int64_t count = std::min(budget, sequence.PromptLeft());
    const bool completes = count == sequence.PromptLeft();
    pieces.push_back(
        {slot,
         {&sequence.cache,
          std::span(sequence.prompt)
              .subspan(static_cast<size_t>(sequence.cache.length()),
                       static_cast<size_t>(count))},
         completes});
    budget -= count;
    if (completes) prefilling_.pop_front();
  }
  return pieces;
}

std::vector<DecodedToken> CpuDecodeBackend::Step() {
  const std::vector<Piece> pieces = PlanStep();
  std::vector<DecodedToken> tokens;
  if (pieces.empty()) return tokens;
  std::vector<TokenRun> runs;
  std::vector<int64_t> rows;
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    runs.push_back(piece.run);
    end += static_cast<int64_t>(piece.run.ids.size());
    if (!piece.samples) continue;
    rows.push_back(end - 1);
    tokens.push_back({.slot = piece.slot});
  }
  decoder_.Forward(AdapterInUse(), runs);
  if (rows.empty()) return tokens;
  const float* logits = decoder_.Logits(rows);
  std::vector<char> finite(tokens.size(), 1);
  ParallelFor(at::get_num_threads(),
              static_cast<int64_t>(tokens.size()),
              [&](int64_t i) {
                const auto index = static_cast<size_t>(i);
                const Sequence& sequence =
                    *slots_[static_cast<size_t>(tokens[index].slot)];
                const std::optional<ChosenToken> chosen = ChooseToken(
                    kernels_,
                    {logits + i * decoder_.logits_stride(),
                     static_cast<size_t>(model_->config.vocab_size)},
                    KnownTokens(),
                    sequence.sampling,
                    KeyedUniform(sequence.key,
                                 static_cast<uint32_t>(sequence.num_sampled)));
                finite[index] = chosen.has_value() ? 1 : 0;
                if (!chosen.has_value()) return;
                tokens[index].token = chosen->token;
                tokens[index].logprob = chosen->logprob;
              });
  for (size_t i = 0; i < tokens.size(); ++i) {
    TORCH_CHECK(finite[i] != 0,
                "[engine] the logits are not finite: the weights that are "
                "served cannot be sampled from");
    Sequence& sequence = *slots_[static_cast<size_t>(tokens[i].slot)];
    sequence.last_token = tokens[i].token;
    sequence.is_running = true;
    ++sequence.num_sampled;
  }
  return tokens;
}

std::vector<float> CpuDecodeBackend::ScoreTokens(
    const std::vector<int32_t>& ids) {
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  CpuKvCache cache(model_->config, count, model_->dtype == at::kBFloat16);
  std::vector<float> logprobs;
  for (int64_t begin = 0; begin < count; begin += options_.step_tokens) {
    const int64_t tokens = std::min(options_.step_tokens, count - begin);
    const TokenRun run = {&cache,
                          std::span(ids).subspan(static_cast<size_t>(begin),
                                                 static_cast<size_t>(tokens))};
    decoder_.Forward(AdapterInUse(), std::span(&run, 1));
    for (int64_t first = 0; first < tokens; first += kScoredRows) {
      std::vector<int64_t> rows;
      for (int64_t row = first; row < std::min(tokens, first + kScoredRows);
           ++row) {
        rows.push_back(row);
      }
      const float* logits = decoder_.Logits(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::span<const float> row(
            logits + static_cast<int64_t>(i) * decoder_.logits_stride(),
            static_cast<size_t>(model_->config.vocab_size));
        logprobs.push_back(
            FastLogProbability(kernels_,
                               row,
                               *std::max_element(row.begin(), row.end()),
                               ids[static_cast<size_t>(begin + rows[i] + 1)]));
      }
    }
  }
  return logprobs;
}

}  // namespace dapd
