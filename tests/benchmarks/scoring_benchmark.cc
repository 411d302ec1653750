// Scores as a teacher on a GPU, for g4_scoring.py.
//
//   dapd_scoring_benchmark ours|products LAYERS
//
// The model has Qwen3-4B's shape with random bfloat16 weights and an adapter of
// rank 64. A round of "ours" does what a teacher service does with 8 samples.
// Each sample has two requests, base None and Cross of both completions and
// snapshot Cross of both, with 1,024 scored tokens per view. As many requests
// are scored together as in the service, and the hidden states end on the host.
// "products" only multiplies as many tokens with the same weights. Rounds
// return "seconds", "tokens" and "flops" (products of the trunk and the
// adapter, without attention).
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/model/fast/pass_products.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/weight_names.h"
#include "common/tensor/aten.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/model_scorer.h"
#include "tests/benchmarks/contender.h"
#include "tests/fakes/relative_error.h"

namespace dapd {
namespace {

constexpr int64_t kSamples = 8;
constexpr int64_t kScored = 1024;
constexpr int64_t kRank = 64;
// A None view has prompt and completion; a Cross view also has the template and
// the other completion.
constexpr int64_t kNone = 200 + kScored;
constexpr int64_t kCross = 200 + kScored + 130 + kScored;

std::shared_ptr<const ModelWeights> MakeWeights(int64_t layers) {
  auto weights = std::make_shared<ModelWeights>();
  weights->config = {.model_type = "qwen3",
                     .vocab_size = 32'000,  // the head is not used
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

// Makes a view that passes through the model with `tokens` tokens; the last
// kScored of them predict scored tokens. No two views begin alike.
View MakeView(int64_t tokens) {
  static int64_t views = 0;
  const int64_t first = ++views * 104'729;
  View view;
  for (int64_t i = 0; i <= tokens; ++i) {
    view.input_ids.push_back(static_cast<int32_t>((i * 7919 + first) % 32'000));
  }
  view.scored_from = tokens + 1 - kScored;
  view.scored_count = kScored;
  return view;
}

// Returns the two requests of each sample, ordered by their weights.
std::vector<ScoreInput> MakeRequests() {
  std::vector<ScoreInput> requests;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    requests.push_back(
        {.weights = WeightSet::kBase,
         .views = {{ViewName::kNoneRollout, MakeView(kNone)},
                   {ViewName::kNoneReference, MakeView(kNone)},
                   {ViewName::kCrossRollout, MakeView(kCross)},
                   {ViewName::kCrossReference, MakeView(kCross)}}});
  }
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    requests.push_back(
        {.weights = WeightSet::kSnapshot,
         .views = {{ViewName::kCrossRollout, MakeView(kCross)},
                   {ViewName::kCrossReference, MakeView(kCross)}}});
  }
  return requests;
}

// Scores as many requests together as the worker does. Returns the number of
// computed tokens, and the first scores of each request in `first`.
int64_t ScoreAll(Scorer& scorer,
                 const std::vector<ScoreInput>& requests,
                 int64_t most_together,
                 std::vector<HostTensor>* first) {
  int64_t tokens = 0;
  for (size_t begin = 0; begin < requests.size();) {
    std::vector<ScoreJob> jobs;
    const WeightSet set = requests[begin].weights;
    while (begin < requests.size() && requests[begin].weights == set &&
           static_cast<int64_t>(jobs.size()) < most_together) {
      const size_t index = begin++;
      jobs.push_back({&requests[index], [first, index](ViewScores scores) {
                        HostTensor& kept = first->at(index);
                        if (kept.data == nullptr) {
                          kept = scores.tensors.front().second;
                        }
                        return true;
                      }});
    }
    for (const auto& outcome : scorer.ScoreTogether(jobs)) {
      TORCH_CHECK(outcome.ok(), std::string(outcome.status().message()));
      tokens += outcome->computed_tokens;
    }
  }
  scorer.Forget();
  return tokens;
}

// Counts the FLOPs of the trunk's products for `tokens`.
double Flops(const ModelWeights& weights, int64_t tokens, bool with_adapter) {
  double parameters = 0.0;
  for (const ProjectionRecipe& own :
       LayerRecipeOf(weights.config, /*layer=*/0).projections) {
    const int64_t in = own.in;
    const int64_t out = own.out;
    parameters += static_cast<double>(in * out);
    if (with_adapter) parameters += static_cast<double>(kRank * (in + out));
  }
  return 2.0 * parameters * static_cast<double>(tokens) *
         static_cast<double>(weights.config.num_layers);
}

// Returns the projections' inputs, by their number of inputs. They are random,
// because a GPU has a higher clock if all numbers are equal.
std::map<int64_t, at::Tensor> MakeInputs(const ModelWeights& weights,
                                         int64_t tokens) {
  std::map<int64_t, at::Tensor> inputs;
  for (const at::Tensor& weight : weights.layers[0].weight) {
    at::Tensor& input = inputs[weight.size(1)];
    if (input.defined()) continue;
    input = at::randn({tokens, weight.size(1)}, weight.options());
  }
  return inputs;
}

// Multiplies with the first `tokens` rows of the inputs.
void Multiply(const ModelWeights& weights,
              const std::map<int64_t, at::Tensor>& inputs,
              int64_t tokens) {
  for (const LayerWeights& layer : weights.layers) {
    for (const at::Tensor& weight : layer.weight) {
      at::linear(inputs.at(weight.size(1)).narrow(0, 0, tokens), weight);
    }
  }
}

// Returns the rows of a pass with `tokens` tokens: fewer than the rows of a
// whole pass if the device's products accept fewer.
int64_t RowsFor(int64_t tokens, const ModelWeights& weights, int64_t whole) {
  std::array<PackedLinear, 4> linears;
  std::ranges::transform(LayerRecipeOf(weights.config, /*layer=*/0).Groups(),
                         linears.begin(),
                         [&](const std::vector<Projection>& group) {
                           const at::Tensor& weight =
                               weights.layers[0].weight[IndexOf(group.front())];
                           return PackedLinear{.weight = weight,
                                               .in = weight.size(1)};
                         });
  return RowsOfPass(linears, /*with_adapter=*/false, tokens, whole).rows;
}

int Main(const std::string& mode, int64_t layers) {
  const auto device = OpenDevice({.device = DeviceChoice::kCuda});
  TORCH_CHECK(device.ok(), "[scoring_benchmark] no CUDA device");
  at::NoGradGuard no_grad;
  const auto weights = MakeWeights(layers);
  Adapter snapshot = MakeFreshAdapter(
      weights->config, {.rank = kRank, .alpha = 2 * kRank}, 1, at::kCUDA);
  for (auto& layer : snapshot.layers) {
    for (LoraPair& pair : layer) pair.b.normal_(0, 0.02);
  }
  constexpr int64_t kBaseTokens = 2 * (kNone + kCross);
  constexpr int64_t kSnapshotTokens = 2 * kCross;
  const double flops = static_cast<double>(kSamples) *
                       (Flops(*weights, kBaseTokens, false) +
                        Flops(*weights, kSnapshotTokens, mode == "ours"));
  const Config config;
  const ScoringShape shape = ScoringShapeFor(config.teacher, *device);
  const std::unique_ptr<Scorer> scorer = MakeModelScorer(
      weights, shape, config.teacher.prefix_memory_mib << 20, &snapshot.config);
  const std::vector<ScoreInput> requests = MakeRequests();
  nlohmann::json ready = nlohmann::json::object();
  if (mode == "ours") {
    AdapterUpload upload;
    upload.set = WeightSet::kSnapshot;
    upload.version = 1;
    upload.adapter = SerializeAdapter(snapshot, "").value();
    upload.probe_ids = {1, 2, 3};
    TORCH_CHECK(scorer->Load(upload).ok(), "[scoring_benchmark] no adapter");
    // Requests that are scored with others are compared with the same requests
    // scored alone.
    std::vector<HostTensor> together(requests.size());
    std::vector<HostTensor> alone(requests.size());
    ScoreAll(*scorer, requests, shape.most_together, &together);
    ScoreAll(*scorer, requests, 1, &alone);
    double error = 0.0;
    for (size_t i = 0; i < requests.size(); ++i) {
      error = std::max(error,
                       RelativeError(ToTorch(together[i]), ToTorch(alone[i])));
    }
    ready["error"] = error;
    ready["rows_for_1000_tokens"] = RowsFor(1000, *weights, shape.pass_tokens);
  }
  std::map<int64_t, at::Tensor> inputs;
  if (mode != "ours") inputs = MakeInputs(*weights, kBaseTokens);
  return ServeRounds(ready, [&](const std::string&) -> nlohmann::json {
    const auto wait = [&] { weights->final_norm[0].item<float>(); };
    wait();
    int64_t tokens = kSamples * (kBaseTokens + kSnapshotTokens);
    const auto start = std::chrono::steady_clock::now();
    if (mode == "ours") {
      std::vector<HostTensor> scores(requests.size());
      tokens = ScoreAll(*scorer, requests, shape.most_together, &scores);
    } else {
      for (int64_t sample = 0; sample < kSamples; ++sample) {
        Multiply(*weights, inputs, kBaseTokens);
        Multiply(*weights, inputs, kSnapshotTokens);
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
