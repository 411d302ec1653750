// Teacher scoring on a GPU, for g4_scoring.py.
//
//   dapd_scoring_benchmark ours|products LAYERS
//
// Qwen3-4B's shape with random bfloat16 weights and an adapter of rank 64. A
// round of "ours" scores 8 samples: base None and Cross of both completions in
// one packed pass, snapshot Cross of both in another, 1,024 scored tokens each.
// "products" multiplies as many tokens with the same weights, nothing else.
// Rounds answer "seconds", "tokens" and "flops" (of the trunk's products with
// the adapter's, without attention).
#include <chrono>
#include <string>
#include <vector>

#include "common/model/reference/decoder.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/weight_names.h"
#include "common/tensor/aten.h"
#include "tests/benchmarks/contender.h"

namespace dapd {
namespace {

constexpr int64_t kSamples = 8;
constexpr int64_t kScored = 1024;
constexpr int64_t kRank = 64;
// None: prompt and completion; Cross: template, the other completion, too.
constexpr int64_t kNone = 200 + kScored;
constexpr int64_t kCross = 200 + kScored + 130 + kScored;

std::shared_ptr<const ModelWeights> MakeWeights(int64_t layers) {
  auto weights = std::make_shared<ModelWeights>();
  weights->config = {.model_type = "qwen3",
                     .vocab_size = 32'000,  // the head takes no part
                     .hidden_size = 2560,
                     .intermediate_size = 9728,
                     .num_layers = layers,
                     .num_heads = 32,
                     .num_kv_heads = 8,
                     .head_dim = 128,
                     .max_positions = 40960,
                     .rope_theta = 1e6,
                     .tied_embeddings = true,
                     .qk_norm = true,
                     .eos_token_ids = {0}};
  weights->layers.resize(static_cast<size_t>(layers));
  const auto options =
      at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  for (const WeightSlot& slot : WeightSlots(*weights)) {
    const bool is_norm = slot.name.find("norm") != std::string::npos;
    *slot.target = is_norm ? at::ones(slot.shape, options)
                           : at::randn(slot.shape, options).mul_(0.02);
  }
  weights->head = weights->embedding;
  return weights;
}

// Views of the given lengths, of which the last kScored tokens are scored.
struct Views {
  PackedTokens tokens;
  at::Tensor rows;
};
Views MakeViews(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<at::Tensor> rows;
  int64_t end = 0;
  for (const int64_t length : lengths) {
    std::vector<int32_t>& ids = sequences.emplace_back();
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<int32_t>((end + i) * 7919 % 32'000));
    }
    end += length;
    rows.push_back(at::arange(end - 1 - kScored, end - 1));
  }
  return {PackTokens(sequences, at::kCUDA), at::cat(rows).to(at::kCUDA)};
}

int64_t Tokens(const Views& views) { return views.tokens.offsets.back(); }

// FLOPs of the trunk's products for `tokens`.
double Flops(const ModelWeights& weights, int64_t tokens, bool with_adapter) {
  double parameters = 0.0;
  for (const Projection projection : AllProjections()) {
    const auto in = ProjectionIn(weights.config, projection);
    const auto out = ProjectionOut(weights.config, projection);
    parameters += static_cast<double>(in * out);
    if (with_adapter) parameters += static_cast<double>(kRank * (in + out));
  }
  return 2.0 * parameters * static_cast<double>(tokens) *
         static_cast<double>(weights.config.num_layers);
}

void Multiply(const ModelWeights& weights, int64_t tokens) {
  const auto options = weights.embedding.options();
  for (const LayerWeights& layer : weights.layers) {
    for (const at::Tensor& weight : layer.weight) {
      at::linear(at::ones({tokens, weight.size(1)}, options), weight);
    }
  }
}

int Main(const std::string& mode, int64_t layers) {
  TORCH_CHECK(ParseDevice("cuda").ok(), "[scoring_benchmark] no CUDA device");
  at::NoGradGuard no_grad;
  const auto weights = MakeWeights(layers);
  Adapter snapshot = MakeFreshAdapter(
      weights->config, {.rank = kRank, .alpha = 2 * kRank}, 1, at::kCUDA);
  for (auto& layer : snapshot.layers) {
    for (LoraPair& pair : layer) pair.b.normal_(0, 0.02);
  }
  const Views base = MakeViews({kNone, kCross, kNone, kCross});
  const Views cross = MakeViews({kCross, kCross});
  const int64_t tokens = kSamples * (Tokens(base) + Tokens(cross));
  const double flops = static_cast<double>(kSamples) *
                       (Flops(*weights, Tokens(base), false) +
                        Flops(*weights, Tokens(cross), mode == "ours"));
  const auto score = [&](const ModelWeights& model,
                         const Adapter* adapter,
                         const Views& views) {
    return ForwardHidden(model, adapter, views.tokens, views.rows);
  };
  // Packing changes nothing: each view of a pass against the view alone.
  nlohmann::json ready = nlohmann::json::object();
  if (mode == "ours") {
    const at::Tensor packed = score(*weights, &snapshot, cross);
    const PackedTokens alone{cross.tokens.ids.narrow(0, kCross, kCross),
                             {0, kCross}};
    const at::Tensor rows = cross.rows.narrow(0, kScored, kScored) - kCross;
    const at::Tensor second =
        ForwardHidden(*weights, &snapshot, alone, rows).to(at::kFloat);
    ready["error"] =
        ((packed.narrow(0, kScored, kScored).to(at::kFloat) - second).norm() /
         second.norm())
            .item<double>();
  }
  return ServeRounds(ready, [&](const std::string&) -> nlohmann::json {
    const auto wait = [&] { base.rows[0].item<int64_t>(); };
    wait();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      if (mode == "ours") {
        score(*weights, nullptr, base);
        score(*weights, &snapshot, cross);
      } else {
        Multiply(*weights, Tokens(base));
        Multiply(*weights, Tokens(cross));
      }
    }
    wait();
    return {
        {"seconds",
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
             .count()},
        {"tokens", tokens},
        {"flops", flops}};
  });
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 3, "usage: dapd_scoring_benchmark ours|products LAYERS");
  return dapd::Main(argv[1], std::stoll(argv[2]));
}
