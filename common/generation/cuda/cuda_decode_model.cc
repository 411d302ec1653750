#include "common/generation/cuda/cuda_decode_model.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"

#include "common/model/rope.h"
#include "common/model/spec/decoding_shape.h"
#include "common/sharding/tensor_parallel.h"

namespace dapd {
namespace {

CudaNumber NumberOf(at::ScalarType dtype) {
  return dtype == at::kFloat ? CudaNumber::kFloat32 : CudaNumber::kBFloat16;
}

// Returns null for an undefined tensor.
const void* DataOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

CudaLinear ViewOf(const PackedLinear& linear) {
  return {.weight = DataOf(linear.weight),
          .lora_a = DataOf(linear.lora_a),
          .bias = DataOf(linear.bias),
          .in = linear.in,
          .out = linear.weight.size(0),
          .lora = linear.lora};
}

}  // namespace

CudaDecodeModel::CudaDecodeModel(ModelWeights weights,
                                 const CudaDecodeOptions& options,
                                 const CudaDecodeApi& api,
                                 CudaDecodeRanks ranks)
    : weights_(std::move(weights)),
      options_(options),
      api_(api),
      ranks_(std::move(ranks), api, decoder_),
      max_tokens_(
          std::min(weights_.config.max_positions, kGpuLongestSequence)) {
  at::NoGradGuard no_grad;
  options_.slots = std::min(options_.slots, kGpuDecodeSlots);
  if (!options_.adapter_form) {
    options_.adapter_form = FormFor(weights_.dtype());
  }
  const ModelConfig& config = weights_.config;
  if (options_.num_tokens <= 0 || options_.num_tokens > config.vocab_size) {
    options_.num_tokens = config.vocab_size;
  }
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
}

CudaDecodeModel::~CudaDecodeModel() {
  ranks_.Settle();
  api_.destroy(decoder_);
}

MergePair CudaDecodeModel::MergeOnDevice() const {
  return [this](const at::Tensor& base,
                const LoraPair& pair,
                double scale,
                const at::Tensor& merged) {
    const at::Tensor a = pair.a.to(base.scalar_type()).contiguous();
    const at::Tensor b = pair.b.to(base.scalar_type()).contiguous();
    const at::Tensor workspace = TakeBytes(api_.merge_workspace());
    const AdapterMerge one{.base = base.const_data_ptr(),
                           .a = a.const_data_ptr(),
                           .b = b.const_data_ptr(),
                           .merged = merged.data_ptr(),
                           .out = base.size(0),
                           .in = base.size(1),
                           .rank = a.size(0),
                           .scale = static_cast<float>(scale)};
    char error[kCudaErrorBytes] = "";
    ranks_.Check(api_.merge_adapter(&one,
                                    1,
                                    NumberOf(weights_.dtype()),
                                    workspace.data_ptr(),
                                    nullptr,
                                    error),
                 error);
  };
}

std::vector<CudaDecoderLayer> CudaDecodeModel::Layers() const {
  std::vector<CudaDecoderLayer> layers;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    using enum NormPlace;
    const LayerWeights& layer = weights_.layers[i];
    const auto& linears = packed_->layers()[i];
    layers.push_back({.input_norm = DataOf(layer.norm(kBeforeAttention)),
                      .post_attention_norm = DataOf(layer.norm(kBeforeMlp)),
                      .q_norm = DataOf(layer.norm(kQueries)),
                      .k_norm = DataOf(layer.norm(kKeys)),
                      .qkv = ViewOf(linears[0]),
                      .o = ViewOf(linears[1]),
                      .gate_up = ViewOf(linears[2]),
                      .down = ViewOf(linears[3])});
  }
  return layers;
}

void CudaDecodeModel::DropDecoder() {
  api_.destroy(decoder_);
  decoder_ = nullptr;
}

void CudaDecodeModel::Prepare() {
  ranks_.OnEveryRank([this] { MakePackedWeights(); });
  MakeDecoder();
}

void CudaDecodeModel::MakePackedWeights() {
  DropDecoder();
  packed_.reset();
  workspace_.reset();
  packed_ = std::make_unique<PackedWeights>(
      weights_,
      *options_.adapter_form,
      adapter_ == nullptr ? nullptr : &adapter_->config,
      MergeOnDevice());
}

void CudaDecodeModel::MakeDecoder() {
  const ModelConfig& config = weights_.config;
  const std::vector<CudaDecoderLayer> layers = Layers();
  const CudaDecoderSpec spec{
      .number = NumberOf(weights_.dtype()),
      .kv_float8 = options_.kv_float8,
      .ranks = ranks_.nccl(),
      .agree = ranks_.agree(),
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
      .max_rows = GpuDecodeRows(options_.slots),
      .stable_bits = options_.stable_bits,
      .bulk_products = options_.bulk_products,
      .end_tokens = end_tokens_.const_data_ptr<int32_t>(),
      .num_end_tokens = end_tokens_.numel()};
  // All ranks must come to the call that makes the decoder, because they ask
  // each other in it and run a step together.
  ranks_.OnEveryRank([&] { workspace_ = TakeBytes(api_.workspace(&spec)); });
  ranks_.OnEveryRank([&] { CreateDecoder(spec); }, [this] { DropDecoder(); });
}

void CudaDecodeModel::CreateDecoder(const CudaDecoderSpec& spec) {
  char error[kCudaErrorBytes] = "";
  const int code = api_.create(&spec, workspace_.data_ptr(), &decoder_, error);
  // It runs after Check has ended the ranks' operations.
  absl::Cleanup destroy = [this] { DropDecoder(); };
  ranks_.CheckMemory(code, error);
  std::move(destroy).Cancel();
}

at::Tensor CudaDecodeModel::TakeBytes(int64_t bytes) const {
  return at::empty(
      {bytes}, at::TensorOptions().dtype(at::kByte).device(weights_.device()));
}

void CudaDecodeModel::SetAdapter(std::shared_ptr<const Adapter> adapter) {
  ranks_.OnEveryRank([&] {
    if (adapter != nullptr && ranks_.share_a_model()) {
      adapter = std::make_shared<const Adapter>(
          ShardAdapter(*adapter, weights_.config, ranks_.place().layout));
    }
  });
  adapter_ = std::move(adapter);
  UseAdapter();
}

void CudaDecodeModel::UseAdapter() {
  is_applied_ = false;
  if (decoder_ == nullptr || !packed_->Fits(adapter_.get())) Prepare();
  ranks_.OnEveryRank([this] { packed_->Apply(adapter_.get()); },
                     [this] { DropDecoder(); });
  is_applied_ = true;
}

void CudaDecodeModel::EnsureDecoder() {
  if (decoder_ == nullptr || !is_applied_) UseAdapter();
}

std::unique_ptr<CudaRankSums> CudaDecodeModel::MakeSums(int64_t tokens) const {
  if (!ranks_.share_a_model()) return nullptr;
  constexpr int64_t kSumsOfLayer = 2;
  return std::make_unique<CudaRankSums>(
      ranks_,
      RowsOfPrefill(tokens, options_.stable_bits ? kPrefillRows : 0),
      weights_.config.hidden_size,
      kSumsOfLayer * weights_.config.num_layers,
      tensor_options());
}

at::Tensor CudaDecodeModel::Prefill(std::span<const PrefillPrompt> prompts,
                                    CudaRankSums* sums) const {
  at::NoGradGuard no_grad;
  SumOfParts sum;
  if (sums != nullptr) {
    sum = [sums](const at::Tensor& part) { return sums->AddUp(part); };
  }
  return PrefillPrompts(weights_,
                        *packed_,
                        prompts,
                        options_.stable_bits ? kPrefillRows : 0,
                        sum)
      .contiguous();
}

}  // namespace dapd
