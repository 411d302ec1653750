#include "common/generation/cuda/cuda_decode_backend.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/base/status_error.h"
#include "common/generation/cuda/cuda_prefill.h"
#include "common/kernels/decode_attention_math.h"
#include "common/model/rope.h"
#include "common/sharding/tensor_parallel.h"

namespace dapd {
namespace {

constexpr int64_t kMaxSlots = 128;
// Longer ones are refused: scratch and tables grow with it. Qwen3's 40,960 fit.
constexpr int64_t kLongestContext = 65536;
// Prompt tokens that one Step computes, so that running sequences go on.
constexpr int64_t kPrefillTokens = 2048;
constexpr int64_t kStepsAtATime = 4;
// Tokens of a sequence that may have been sampled and not returned: those of
// all launches, and of one that Start or Stop waited for.
constexpr int64_t kTokensAhead = (kMaxBursts + 1) * kStepsAtATime;

CudaNumber NumberOf(at::ScalarType dtype) {
  return dtype == at::kFloat ? CudaNumber::kFloat32 : CudaNumber::kBFloat16;
}

// Null for an undefined tensor.
const void* DataOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Why the kernels do not take this model; empty: they do.
std::string Misfit(const ModelWeights& weights) {
  const ModelConfig& config = weights.config;
  if (!FitsDecodeAttention(
          config.num_heads, config.num_kv_heads, config.head_dim)) {
    return absl::StrCat(config.num_heads,
                        " heads over ",
                        config.num_kv_heads,
                        " of dimension ",
                        config.head_dim,
                        "; head_dim must be a multiple of 8 up to 256 and at "
                        "most 8 heads may share one");
  }
  if (config.hidden_size % 8 != 0 || config.intermediate_size % 8 != 0) {
    return "hidden and intermediate size must be multiples of 8";
  }
  return "";
}

// Nothing, with the reason in the log, where the kernels are not to be had.
std::optional<CudaLibrary> LibraryFor(const ModelWeights& weights) {
  const std::string misfit = Misfit(weights);
  const std::optional<CudaLibrary> library = FindCudaLibrary();
  if (misfit.empty() && library) return library;
  LogWarning(absl::StrCat(
      "decoding by LibTorch's operations: ",
      misfit.empty() ? "libdapd_cuda.so was built without nvcc" : misfit));
  return std::nullopt;
}

AdapterForm FormOf(const ModelWeights& weights,
                   const CudaDecodeOptions& options) {
  return options.adapter_form.value_or(weights.dtype() == at::kFloat
                                           ? AdapterForm::kMerged
                                           : AdapterForm::kColumns);
}

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

// The addresses of pages [pages, ...].
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

std::unique_ptr<DecodeBackend> MakeCudaDecodeBackend(
    std::shared_ptr<const ModelWeights>& weights,
    const CudaDecodeOptions& options) {
  const std::optional<CudaLibrary> library = LibraryFor(*weights);
  if (!library) return nullptr;
  ModelWeights taken = *weights;
  if (FormOf(taken, options) == AdapterForm::kColumns) {
    weights.reset();
    return std::make_unique<CudaDecodeBackend>(
        std::move(taken), options, *library);
  }
  try {
    auto backend = std::make_unique<CudaDecodeBackend>(
        std::move(taken), options, *library);
    weights.reset();
    return backend;
  } catch (const c10::OutOfMemoryError& error) {
    LogWarning(absl::StrCat(
        "decoding by LibTorch's operations: no room on the GPU for a second "
        "form of the weights: ",
        error.what_without_backtrace()));
    return nullptr;
  }
}

ModelWeights CudaWeightsOfRank(const ShardedWeights& share) {
  ModelWeights own = WeightsOfRank(share);
  for (size_t layer = 0; layer < own.layers.size(); ++layer) {
    for (const Projection projection : AllProjections()) {
      if (SplitDimension(projection) == 0) continue;
      const auto index = static_cast<size_t>(projection);
      own.layers[layer].bias[index] = share.shard.layers[layer].bias[index];
    }
  }
  return own;
}

std::unique_ptr<DecodeBackend> MakeSharedCudaDecodeBackend(
    std::shared_ptr<const ShardedWeights>& share,
    const std::shared_ptr<DeviceGroup>& devices,
    const CudaDecodeOptions& options) {
  ModelWeights own = CudaWeightsOfRank(*share);
  const std::optional<CudaLibrary> library = LibraryFor(own);
  if (!library) return nullptr;
  CudaDecodeRanks ranks{share->shard.config, share->layout, devices};
  share.reset();
  return std::make_unique<CudaDecodeBackend>(
      std::move(own), options, *library, std::move(ranks));
}

CudaDecodeBackend::CudaDecodeBackend(ModelWeights weights,
                                     const CudaDecodeOptions& options,
                                     const CudaLibrary& library,
                                     CudaDecodeRanks ranks)
    : weights_(std::move(weights)),
      options_(options),
      library_(library),
      ranks_(std::move(ranks)),
      max_tokens_(std::min(weights_.config.max_positions, kLongestContext)) {
  at::NoGradGuard no_grad;
  options_.slots = std::min(options_.slots, kMaxSlots);
  options_.adapter_form = FormOf(weights_, options);
  const ModelConfig& config = weights_.config;
  if (options_.num_tokens <= 0 || options_.num_tokens > config.vocab_size) {
    options_.num_tokens = config.vocab_size;
  }
  slots_.resize(static_cast<size_t>(options_.slots));
  const RotaryAngles angles = MakeRotaryAngles(
      config,
      at::arange(
          max_tokens_,
          at::TensorOptions().dtype(at::kLong).device(weights_.device())),
      weights_.dtype());
  cosine_ = angles.cos.contiguous();
  sine_ = angles.sin.contiguous();
  end_tokens_ =
      at::tensor(config.eos_token_ids, at::kInt).to(weights_.device());
  Prepare();
  kv_budget_ = library_.free_bytes() / 2;
}

CudaDecodeBackend::~CudaDecodeBackend() { library_.destroy(decoder_); }

void CudaDecodeBackend::LoseRanks(const std::string& why) const {
  ranks_.devices->Abort();
  throw StatusError(absl::AbortedError(why));
}

void CudaDecodeBackend::Check(int code, const char* error) const {
  if (code != 0 && ranks_.devices != nullptr) LoseRanks(error);
  CheckCuda(code, error);
}

template <typename Call>
auto CudaDecodeBackend::OnEveryRank(const Call& call) const {
  if (ranks_.devices == nullptr) return call();
  try {
    return call();
  } catch (const c10::Error& error) {
    LoseRanks(error.what_without_backtrace());
  }
}

at::Tensor CudaDecodeBackend::AddUpOverRanks(const at::Tensor& part) const {
  const NcclRanks ranks = ranks_.devices->nccl();
  const int64_t numel = part.numel();
  const int64_t piece = (numel + ranks.size - 1) / ranks.size;
  at::Tensor pieces = part.contiguous().view({-1});
  if (piece * ranks.size > numel) {
    pieces = at::constant_pad_nd(pieces, {0, piece * ranks.size - numel});
  }
  const at::Tensor received = at::empty({ranks.size, piece}, pieces.options());
  char error[kNcclErrorBytes] = "";
  Check(library_.launch_exchange(&ranks,
                                 pieces.const_data_ptr(),
                                 received.data_ptr(),
                                 piece * static_cast<int64_t>(sizeof(float)),
                                 nullptr,
                                 error),
        error);
  at::Tensor sum = received[0];
  for (int64_t rank = 1; rank < ranks.size; ++rank) sum.add_(received[rank]);
  const at::Tensor all =
      at::empty({ranks.size, piece}, part.options().dtype(weights_.dtype()));
  const at::Tensor own = all[ranks.rank];
  own.copy_(sum);
  const NcclGather gather{.part = own.const_data_ptr(),
                          .all = all.data_ptr(),
                          .bytes = static_cast<int64_t>(own.nbytes())};
  Check(library_.launch_all_gather(&ranks, &gather, 1, nullptr, error), error);
  return all.view({-1}).narrow(0, 0, numel).view(part.sizes());
}

MergePair CudaDecodeBackend::MergeOnDevice() const {
  return [this](const at::Tensor& base,
                const LoraPair& pair,
                double scale,
                const at::Tensor& merged) {
    const at::Tensor a = pair.a.to(base.scalar_type()).contiguous();
    const at::Tensor b = pair.b.to(base.scalar_type()).contiguous();
    const at::Tensor workspace = TakeBytes(library_.merge_workspace());
    const AdapterMerge one{.base = base.const_data_ptr(),
                           .a = a.const_data_ptr(),
                           .b = b.const_data_ptr(),
                           .merged = merged.data_ptr(),
                           .out = base.size(0),
                           .in = base.size(1),
                           .rank = a.size(0),
                           .scale = static_cast<float>(scale)};
    char error[kCudaErrorBytes] = "";
    Check(library_.merge_adapter(&one,
                                 1,
                                 NumberOf(weights_.dtype()),
                                 workspace.data_ptr(),
                                 nullptr,
                                 error),
          error);
  };
}

std::vector<CudaDecoderLayer> CudaDecodeBackend::LayersOf(
    const CudaPackedWeights& packed) const {
  std::vector<CudaDecoderLayer> layers;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const auto& linears = packed.layers()[i];
    layers.push_back({.input_norm = DataOf(layer.input_norm),
                      .post_attention_norm = DataOf(layer.post_attention_norm),
                      .q_norm = DataOf(layer.q_norm),
                      .k_norm = DataOf(layer.k_norm),
                      .qkv = linears[0].View(),
                      .o = linears[1].View(),
                      .gate_up = linears[2].View(),
                      .down = linears[3].View()});
  }
  return layers;
}

void CudaDecodeBackend::Prepare() {
  library_.destroy(decoder_);
  decoder_ = nullptr;
  packed_.reset();
  workspace_.reset();
  packed_ = std::make_unique<CudaPackedWeights>(
      weights_,
      *options_.adapter_form,
      adapter_ == nullptr ? nullptr : &adapter_->config,
      MergeOnDevice());

  const ModelConfig& config = weights_.config;
  const std::vector<CudaDecoderLayer> layers = LayersOf(*packed_);
  const CudaDecoderSpec spec{
      .number = NumberOf(weights_.dtype()),
      .ranks = ranks_.devices == nullptr ? NcclRanks{} : ranks_.devices->nccl(),
      .hidden = config.hidden_size,
      .intermediate = config.intermediate_size,
      .heads = config.num_heads,
      .kv_heads = config.num_kv_heads,
      .head_dim = config.head_dim,
      .vocab = config.vocab_size,
      .num_tokens = options_.num_tokens,
      .eps = static_cast<float>(config.rms_norm_eps),
      .num_layers = config.num_layers,
      .layers = layers.data(),
      .embedding = DataOf(weights_.embedding),
      .final_norm = DataOf(weights_.final_norm),
      .head = DataOf(weights_.head),
      .cosine = DataOf(cosine_),
      .sine = DataOf(sine_),
      .slots = options_.slots + 1,  // the last one scores
      .max_tokens = max_tokens_,
      .max_rows = static_cast<int64_t>(
          std::bit_ceil(static_cast<uint64_t>(options_.slots))),
      .stable_bits = options_.stable_bits,
      .end_tokens = end_tokens_.const_data_ptr<int32_t>(),
      .num_end_tokens = end_tokens_.numel()};
  workspace_ = TakeBytes(library_.workspace(&spec));
  char error[kCudaErrorBytes] = "";
  Check(library_.create(&spec, workspace_.data_ptr(), &decoder_, error), error);
}

at::Tensor CudaDecodeBackend::TakeBytes(int64_t bytes) const {
  return at::empty(
      {bytes}, at::TensorOptions().dtype(at::kByte).device(weights_.device()));
}

int64_t CudaDecodeBackend::Sequence::num_pages() const {
  int64_t count = 0;
  for (const at::Tensor& each : pages) count += each.size(0);
  return count;
}

int64_t CudaDecodeBackend::StepPositions() const { return kTokensAhead; }

int64_t CudaDecodeBackend::KvBytes(int64_t tokens) const {
  if (tokens > max_tokens_) return kTooLong;
  const ModelConfig& config = weights_.config;
  return NumSplits(tokens) * kSplitTokens * config.num_layers * 2 *
         config.num_kv_heads * config.head_dim *
         static_cast<int64_t>(c10::elementSize(weights_.dtype()));
}

at::Tensor CudaDecodeBackend::TakePages(int64_t tokens) const {
  const ModelConfig& config = weights_.config;
  return at::empty({NumSplits(tokens),
                    config.num_layers,
                    2,
                    config.num_kv_heads,
                    kSplitTokens,
                    config.head_dim},
                   weights_.embedding.options());
}

void CudaDecodeBackend::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  if (adapter != nullptr && ranks_.devices != nullptr) {
    adapter =
        std::make_shared<const Adapter>(ShardAdapter(*adapter, ranks_.layout));
  }
  adapter_ = std::move(adapter);
  UseAdapter();
}

void CudaDecodeBackend::UseAdapter() {
  OnEveryRank([this] {
    if (decoder_ == nullptr || !packed_->Fits(adapter_.get())) Prepare();
    packed_->Apply(adapter_.get());
  });
}

void CudaDecodeBackend::EnsureDecoder() {
  if (decoder_ == nullptr) UseAdapter();
}

bool CudaDecodeBackend::Start(int64_t slot, DecodeRequest request) {
  const int64_t tokens =
      std::min(static_cast<int64_t>(request.prompt_ids.size()) + kTokensAhead,
               request.MaxTokens());
  auto sequence = std::make_unique<Sequence>();
  sequence->request = std::move(request);
  try {
    EnsureDecoder();
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
  const int64_t more = NumSplits(tokens) - first;
  if (more <= 0) return true;
  try {
    sequence.pages.push_back(TakePages(more * kSplitTokens));
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  if (!sequence.prefilled) return true;  // Prefill hands them over
  const std::vector<void*> addresses =
      AddressesOf(std::span(sequence.pages).last(1));
  const CudaSlotPages pages = PagesFrom(first, addresses);
  char error[kCudaErrorBytes] = "";
  Check(library_.extend(decoder_, slot, &pages, error), error);
  return true;
}

void CudaDecodeBackend::Stop(int64_t slot) {
  char error[kCudaErrorBytes] = "";
  Check(library_.stop(decoder_, slot, error), error);
  std::erase(waiting_, slot);
  std::erase_if(pending_, [slot](const DecodedToken& token) {
    return token.slot == slot;
  });
  slots_[static_cast<size_t>(slot)].reset();
}

void CudaDecodeBackend::Prefill(std::span<const Waiting> prompts) {
  at::NoGradGuard no_grad;
  std::vector<PrefillPrompt> pass;
  for (const Waiting& waiting : prompts) {
    pass.push_back({waiting.sequence->request.prompt_ids,
                    waiting.sequence->pages.front()});
  }
  SumOfParts sum;
  if (ranks_.devices != nullptr) {
    sum = [this](const at::Tensor& part) { return AddUpOverRanks(part); };
  }
  const at::Tensor logits =
      PrefillPrompts(weights_,
                     *packed_,
                     pass,
                     options_.stable_bits ? kPrefillRows : 0,
                     sum)
          .contiguous();
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
  Check(library_.start(decoder_,
                       started.data(),
                       static_cast<int64_t>(started.size()),
                       logits.const_data_ptr<float>(),
                       error),
        error);
  for (const Waiting& waiting : prompts) waiting.sequence->prefilled = true;
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
  // Where all of them find no memory, fewer may.
  while (!pass.empty()) {
    try {
      OnEveryRank([&] { Prefill(pass); });
      waiting_.erase(waiting_.begin(),
                     waiting_.begin() + static_cast<int64_t>(pass.size()));
      return;
    } catch (const c10::OutOfMemoryError&) {
      // What runs gives memory back when it ends.
      if (pass.size() == 1 && library_.running(decoder_) == 0) throw;
      pass.resize(pass.size() / 2);
    }
  }
}

std::vector<DecodedToken> CudaDecodeBackend::Collect(
    std::vector<float>* scored) {
  std::vector<CudaDecodedToken> collected(
      static_cast<size_t>((options_.slots + 1) * kSampledRing));
  int64_t count = 0;
  char error[kCudaErrorBytes] = "";
  Check(library_.collect(decoder_, collected.data(), &count, error), error);
  std::vector<DecodedToken> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const auto& [slot, sampled] = collected[static_cast<size_t>(i)];
    TORCH_CHECK(sampled.token >= 0,
                "[engine] the logits are not finite: the weights that are "
                "served cannot be sampled from");
    if (slot == options_.slots) {
      scored->push_back(sampled.logprob);
    } else {
      tokens.push_back({slot, sampled.token, sampled.logprob});
    }
  }
  return tokens;
}

std::vector<DecodedToken> CudaDecodeBackend::Step() {
  PrefillWaiting();
  char error[kCudaErrorBytes] = "";
  while (library_.running(decoder_) > 0 &&
         library_.launched(decoder_) < kMaxBursts) {
    Check(library_.launch(decoder_, kStepsAtATime, error), error);
  }
  std::vector<DecodedToken> tokens = std::exchange(pending_, {});
  const std::vector<DecodedToken> collected = Collect(nullptr);
  tokens.insert(tokens.end(), collected.begin(), collected.end());
  return tokens;
}

std::vector<float> CudaDecodeBackend::ScoreTokens(
    const std::vector<int32_t>& ids) {
  EnsureDecoder();
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  const at::Tensor forced =
      at::tensor(std::vector<int32_t>(ids.begin() + 1, ids.end()), at::kInt)
          .to(weights_.device());
  Sequence sequence;
  sequence.request.prompt_ids = {ids.front()};
  sequence.request.sampling.max_new_tokens = count;
  const int64_t slot = options_.slots;
  const Waiting scoring{slot, &sequence, forced.const_data_ptr<int32_t>()};
  OnEveryRank([&] {
    sequence.pages = {TakePages(sequence.request.MaxTokens())};
    Prefill({&scoring, 1});
  });
  std::vector<float> scored;
  char error[kCudaErrorBytes] = "";
  // Also where a step fails: its pages end here.
  const absl::Cleanup stop = [&] { library_.stop(decoder_, slot, error); };
  while (true) {
    const std::vector<DecodedToken> others = Collect(&scored);
    pending_.insert(pending_.end(), others.begin(), others.end());
    const int64_t left = count - static_cast<int64_t>(scored.size());
    if (left == 0) break;
    Check(library_.launch(decoder_, std::min(left, kStepsAtATime), error),
          error);
  }
  return scored;
}

}  // namespace dapd
