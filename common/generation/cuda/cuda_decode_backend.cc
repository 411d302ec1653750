#include "common/generation/cuda/cuda_decode_backend.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"

#include "common/generation/scored_prompt.h"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/float8.h"
#include "common/model/spec/decoding_shape.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

constexpr int64_t kStepsAtATime = 4;
// The largest number of a sequence's tokens that are sampled but not yet
// returned: the tokens of all launches, and of one launch that Start or Stop
// waited for.
constexpr int64_t kTokensAhead = (kMaxBursts + 1) * kStepsAtATime;

CudaSequence SequenceOf(const DecodeRequest& request, const int32_t* forced) {
  return {
      .seed = request.key.seed,
      .step = request.key.step,
      .example = request.key.example,
      .sample = request.key.sample,
      .top_k = static_cast<int32_t>(std::min<int64_t>(
          request.sampling.top_k, std::numeric_limits<int32_t>::max())),
      .temperature = request.sampling.temperature,
      .top_p = request.sampling.top_p,
      .max_new_tokens = static_cast<int32_t>(request.sampling.max_new_tokens),
      .forced = forced};
}

// Returns the addresses of pages [pages, ...].
std::vector<void*> AddressesOf(std::span<const at::Tensor> pages) {
  std::vector<void*> addresses;
  for (const at::Tensor& each : pages) {
    for (int64_t page = 0; page < each.size(0); ++page) {
      addresses.push_back(each[page].data_ptr());
    }
  }
  return addresses;
}

CudaSlotPages PagesFrom(int64_t first, const std::vector<void*>& addresses) {
  return {.first = first,
          .pages = addresses.data(),
          .num_pages = static_cast<int64_t>(addresses.size())};
}

}  // namespace

CudaDecodeBackend::CudaDecodeBackend(ModelWeights weights,
                                     const CudaDecodeOptions& options,
                                     const CudaDecodeApi& api,
                                     CudaDecodeRanks ranks)
    : model_(std::move(weights), options, api, std::move(ranks)) {
  slots_.resize(static_cast<size_t>(model_.slots()));
  kv_budget_ = api.free_bytes() / 2;
  host_pages_ = std::make_unique<CudaHostPages>(api, page_bytes());
}

template <typename Function, typename... Args>
void CudaDecodeBackend::Call(Function CudaDecodeApi::*function,
                             Args... args) const {
  char error[kCudaErrorBytes] = "";
  const int code = (model_.api().*function)(model_.decoder(), args..., error);
  model_.ranks().Check(code, error);
}

int64_t CudaDecodeBackend::num_running() const {
  return model_.api().running(model_.decoder());
}

int64_t CudaDecodeBackend::Sequence::num_pages() const {
  int64_t count = 0;
  for (const at::Tensor& each : pages) count += each.size(0);
  return count;
}

int64_t CudaDecodeBackend::StepPositions() const { return kTokensAhead; }

int64_t CudaDecodeBackend::KvBytes(int64_t tokens) const {
  if (tokens > model_.max_tokens()) return kTooLong;
  const ModelConfig& config = model_.own_config();
  return NumPages(tokens) * config.num_layers * 2 * config.num_kv_heads *
         PartBytes();
}

int64_t CudaDecodeBackend::PartBytes() const {
  const int64_t head_dim = model_.own_config().head_dim;
  if (model_.kv_float8()) return Float8PartBytes(head_dim);
  return kPageTokens * head_dim *
         static_cast<int64_t>(model_.tensor_options().dtype().itemsize());
}

at::Tensor CudaDecodeBackend::TakePages(int64_t tokens) const {
  const ModelConfig& config = model_.own_config();
  if (model_.kv_float8()) {
    return at::empty({NumPages(tokens),
                      config.num_layers,
                      2,
                      config.num_kv_heads,
                      PartBytes()},
                     model_.tensor_options().dtype(at::kByte));
  }
  return at::empty({NumPages(tokens),
                    config.num_layers,
                    2,
                    config.num_kv_heads,
                    kPageTokens,
                    config.head_dim},
                   model_.tensor_options());
}

void CudaDecodeBackend::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  model_.SetAdapter(std::move(adapter));
}

bool CudaDecodeBackend::Start(int64_t slot, DecodeRequest request) {
  const int64_t tokens =
      std::min(static_cast<int64_t>(request.prompt_ids.size()) + kTokensAhead,
               request.MaxTokens());
  auto sequence = std::make_unique<Sequence>();
  sequence->request = std::move(request);
  try {
    model_.EnsureDecoder();
    sequence->pages.push_back(TakePages(tokens));
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  slots_[static_cast<size_t>(slot)] = std::move(sequence);
  waiting_.push_back(slot);
  return true;
}

bool CudaDecodeBackend::Reserve(int64_t slot, int64_t tokens) {
  Sequence& sequence = *slots_[static_cast<size_t>(slot)];
  const int64_t first = sequence.num_pages();
  const int64_t more = NumPages(tokens) - first;
  if (more <= 0) return true;
  try {
    sequence.pages.push_back(TakePages(more * kPageTokens));
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  if (!sequence.prefilled) return true;  // Prefill passes them to the decoder
  const std::vector<void*> addresses =
      AddressesOf(std::span(sequence.pages).last(1));
  const CudaSlotPages pages = PagesFrom(first, addresses);
  Call(&CudaDecodeApi::extend, slot, &pages);
  return true;
}

void CudaDecodeBackend::Stop(int64_t slot) {
  Call(&CudaDecodeApi::stop, slot);
  std::erase(waiting_, slot);
  DropPending(slot);
  slots_[static_cast<size_t>(slot)].reset();
}

void CudaDecodeBackend::DropPending(int64_t slot) {
  std::erase_if(pending_, [slot](const DecodedToken& token) {
    return token.slot == slot;
  });
}

void CudaDecodeBackend::CopyPages(const std::vector<void*>& to,
                                  const std::vector<void*>& from) const {
  Call(&CudaDecodeApi::copy_pages,
       to.data(),
       from.data(),
       static_cast<int64_t>(to.size()),
       page_bytes());
}

int64_t CudaDecodeBackend::SwapOut(int64_t slot, uint64_t key) {
  Sequence& sequence = *slots_[static_cast<size_t>(slot)];
  if (!sequence.prefilled) {
    Stop(slot);
    return 0;
  }
  Swapped swapped{.request = std::move(sequence.request)};
  for (const DecodedToken& token : pending_) {
    if (token.slot == slot) swapped.tokens.push_back(token);
  }
  std::array<CudaDecodedToken, kSampledRing> tokens;
  int64_t num_tokens = 0;
  Call(
      &CudaDecodeApi::pause, slot, &swapped.paused, tokens.data(), &num_tokens);
  for (const CudaDecodedToken& token : std::span(tokens).first(num_tokens)) {
    swapped.tokens.push_back(Finite(token));
  }
  // The last token's keys and values are not computed yet.
  const int64_t positions =
      static_cast<int64_t>(swapped.request.prompt_ids.size()) +
      swapped.paused.num_sampled - 1;
  std::vector<void*> pages = AddressesOf(sequence.pages);
  pages.resize(static_cast<size_t>(NumPages(positions)));
  const auto count = static_cast<int64_t>(pages.size());
  swapped.pages = host_pages_->Take(count);
  const bool is_kept = !swapped.pages.empty();
  if (is_kept) {
    CopyPages(swapped.pages, pages);
    swapped_[key] = std::move(swapped);
  }
  Stop(slot);
  return is_kept ? count * page_bytes() : 0;
}

bool CudaDecodeBackend::SwapIn(int64_t slot, uint64_t key, int64_t tokens) {
  Swapped& swapped = swapped_.at(key);
  auto sequence = std::make_unique<Sequence>();
  try {
    sequence->pages.push_back(TakePages(tokens));
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  const std::vector<void*> pages = AddressesOf(sequence->pages);
  CopyPages({pages.begin(),
             pages.begin() + static_cast<std::ptrdiff_t>(swapped.pages.size())},
            swapped.pages);
  // A sequence that has ended only has tokens to return.
  if (!swapped.paused.has_ended) {
    CudaContinued continued{
        .slot = slot,
        .sequence = SequenceOf(swapped.request, /*forced=*/nullptr),
        .num_tokens = static_cast<int64_t>(swapped.request.prompt_ids.size()),
        .last_token = swapped.paused.last_token,
        .pages = PagesFrom(0, pages)};
    continued.sequence.num_sampled = swapped.paused.num_sampled;
    Call(&CudaDecodeApi::resume, &continued);
  }
  for (DecodedToken token : swapped.tokens) {
    token.slot = slot;
    pending_.push_back(token);
  }
  sequence->request = std::move(swapped.request);
  sequence->prefilled = true;
  slots_[static_cast<size_t>(slot)] = std::move(sequence);
  DropSwapped(key);
  return true;
}

void CudaDecodeBackend::DropSwapped(uint64_t key) {
  const auto swapped = swapped_.find(key);
  if (swapped == swapped_.end()) return;
  host_pages_->Give(swapped->second.pages);
  swapped_.erase(swapped);
}

void CudaDecodeBackend::Prefill(std::span<const Waiting> prompts) {
  int64_t tokens = 0;
  for (const Waiting& waiting : prompts) {
    tokens += static_cast<int64_t>(waiting.sequence->request.prompt_ids.size());
  }
  std::unique_ptr<CudaRankSums> sums;
  model_.ranks().OnEveryRank([&] { sums = model_.MakeSums(tokens); });
  model_.ranks().OnEveryRank(
      [&] {
        try {
          PrefillOnRank(prompts, sums.get());
        } catch (const c10::OutOfMemoryError&) {
          if (sums != nullptr) sums->LaunchRest();
          throw;
        }
      },
      [&] {
        for (const Waiting& waiting : prompts) {
          Call(&CudaDecodeApi::stop, waiting.slot);
          waiting.sequence->prefilled = false;
          DropPending(waiting.slot);
        }
      });
}

void CudaDecodeBackend::PrefillOnRank(std::span<const Waiting> prompts,
                                      CudaRankSums* sums) {
  std::vector<PrefillPrompt> pass;
  std::vector<RowScores> scores(prompts.size());
  for (const Waiting& waiting : prompts) {
    const DecodeRequest& request = waiting.sequence->request;
    pass.push_back({request.prompt_ids,
                    waiting.sequence->pages.front(),
                    request.score_prompt ? &scores[pass.size()] : nullptr});
  }
  const at::Tensor logits = model_.Prefill(pass, sums);
  std::vector<at::Tensor> scored;
  for (const RowScores& each : scores) {
    scored.insert(scored.end(),
                  {each.logprobs, each.top_ids, each.top_logprobs});
  }
  HostCopies copies(std::move(scored));
  std::vector<CudaPrompt> started;
  std::vector<std::vector<void*>> addresses;
  for (const Waiting& waiting : prompts) {
    const Sequence& sequence = *waiting.sequence;
    addresses.push_back(AddressesOf(sequence.pages));
    started.push_back(
        {.slot = waiting.slot,
         .sequence = SequenceOf(sequence.request, waiting.forced),
         .num_tokens = static_cast<int64_t>(sequence.request.prompt_ids.size()),
         .pages = PagesFrom(0, addresses.back())});
  }
  char error[kCudaErrorBytes] = "";
  const int code = model_.api().start(model_.decoder(),
                                      started.data(),
                                      static_cast<int64_t>(started.size()),
                                      logits.const_data_ptr<float>(),
                                      error);
  model_.ranks().CheckMemory(code, error);
  for (const Waiting& waiting : prompts) waiting.sequence->prefilled = true;
  // The decoder has waited for the pass, and so for the copies, in a way that
  // ends if another rank is lost.
  const std::vector<at::Tensor> copied = copies.Take();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const DecodeRequest& request = prompts[i].sequence->request;
    if (!request.score_prompt) continue;
    AppendScoredPrompt(prompts[i].slot,
                       request.prompt_ids,
                       {copied[3 * i], copied[3 * i + 1], copied[3 * i + 2]},
                       &pending_);
  }
}

void CudaDecodeBackend::PrefillWaiting() {
  int64_t tokens = 0;
  std::vector<Waiting> pass;
  for (const int64_t slot : waiting_) {
    if (tokens >= kPrefillTokens ||
        static_cast<int64_t>(pass.size()) == kPrefillPrompts) {
      break;
    }
    Sequence& sequence = *slots_[static_cast<size_t>(slot)];
    pass.push_back({slot, &sequence});
    tokens += static_cast<int64_t>(sequence.request.prompt_ids.size());
  }
  // If there is no memory for all prompts, there may be for fewer.
  while (!pass.empty()) {
    try {
      Prefill(pass);
      waiting_.erase(waiting_.begin(),
                     waiting_.begin() + static_cast<int64_t>(pass.size()));
      return;
    } catch (const c10::OutOfMemoryError&) {
      // Running sequences give memory back when they end.
      if (pass.size() == 1 && num_running() == 0) throw;
      pass.resize(pass.size() / 2);
    }
  }
}

DecodedToken CudaDecodeBackend::Finite(const CudaDecodedToken& token) const {
  const CudaSampled& sampled = token.sampled;
  // The caller that gets this error asks the device whether it works and waits
  // for all launched work, so that work must end here first.
  if (sampled.token < 0) model_.ranks().Settle();
  TORCH_CHECK(sampled.token >= 0,
              "[engine] the logits are not finite: the weights that are "
              "served cannot be sampled from");
  return {token.slot, sampled.token, sampled.logprob};
}

std::vector<DecodedToken> CudaDecodeBackend::Collect(
    std::vector<float>* scored) {
  std::vector<CudaDecodedToken> collected(
      static_cast<size_t>((num_slots() + 1) * kSampledRing));
  int64_t count = 0;
  Call(&CudaDecodeApi::collect, collected.data(), &count);
  std::vector<DecodedToken> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const DecodedToken token = Finite(collected[static_cast<size_t>(i)]);
    if (token.slot == num_slots()) {
      scored->push_back(token.logprob);
    } else {
      tokens.push_back(token);
    }
  }
  return tokens;
}

std::vector<DecodedToken> CudaDecodeBackend::Step() {
  PrefillWaiting();
  while (num_running() > 0 &&
         model_.api().launched(model_.decoder()) < kMaxBursts) {
    Call(&CudaDecodeApi::launch, kStepsAtATime);
  }
  std::vector<DecodedToken> tokens = std::exchange(pending_, {});
  const std::vector<DecodedToken> collected = Collect(nullptr);
  tokens.insert(tokens.end(), collected.begin(), collected.end());
  return tokens;
}

std::vector<float> CudaDecodeBackend::ScoreTokens(
    const std::vector<int32_t>& ids) {
  model_.EnsureDecoder();
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  at::Tensor forced;
  Sequence sequence;
  sequence.request.prompt_ids = {ids.front()};
  sequence.request.sampling.max_new_tokens = count;
  const int64_t slot = num_slots();
  model_.ranks().OnEveryRank([&] {
    // The host does not wait for this copy, which may come after steps that
    // wait for a rank.
    forced = ToDevice(
        at::tensor(std::vector<int32_t>(ids.begin() + 1, ids.end()), at::kInt),
        model_.tensor_options().device());
    sequence.pages = {TakePages(sequence.request.MaxTokens())};
  });
  const Waiting scoring{slot, &sequence, forced.const_data_ptr<int32_t>()};
  Prefill({&scoring, 1});
  std::vector<float> scored;
  // Runs also when a step fails, because the sequence's pages are freed here.
  const absl::Cleanup stop = [&] {
    if (model_.ranks().are_lost()) return;
    char error[kCudaErrorBytes] = "";
    model_.api().stop(model_.decoder(), slot, error);
  };
  while (true) {
    const std::vector<DecodedToken> others = Collect(&scored);
    pending_.insert(pending_.end(), others.begin(), others.end());
    const int64_t left = count - static_cast<int64_t>(scored.size());
    if (left == 0) break;
    Call(&CudaDecodeApi::launch, std::min(left, kStepsAtATime));
  }
  return scored;
}

}  // namespace dapd
