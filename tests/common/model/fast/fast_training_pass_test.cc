#include "common/model/fast/fast_training_pass.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/random_model.h"
#include "tests/fakes/relative_error.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

// Returns a model with weights of about a trained model's size, 1 /
// sqrt(hidden): larger weights magnify rounding.
std::shared_ptr<const ModelWeights> MakeModel(
    const std::string& family, at::ScalarType dtype = at::kFloat) {
  auto weights = MakeRandomModel(family, 1, dtype);
  for (const LayerWeights& layer : weights->layers) {
    for (const at::Tensor& weight : layer.weight) weight.mul_(0.5);
  }
  return weights;
}

// Has three sequences, one of a single token; some of their rows are in no
// order.
struct Case {
  PackedTokens tokens = PackTokens(
      {RandomModelIds(23, 1), RandomModelIds(1, 7), RandomModelIds(70, 3)},
      at::kCPU);
  at::Tensor rows =
      at::tensor(std::vector<int64_t>{5, 6, 7, 22, 23, 93, 60, 61}, at::kLong);
  at::Tensor grad_hidden = [] {
    at::Generator generator = at::detail::createCPUGenerator(9);
    return at::randn({8, 32}, generator);
  }();
};

struct Errors {
  double value = 0.0;
  double gradient = 0.0;  // of all tensors together
  double worst = 0.0;     // of a tensor alone
};

// Compares FastTrainingPass with ForwardHidden under autograd.
Errors CompareWithAutograd(const ModelWeights& weights,
                           const Adapter& adapter,
                           int64_t activation_bytes) {
  const Case c;
  const at::Tensor expected =
      ForwardHidden(weights, &adapter, c.tokens, c.rows);
  expected.backward(c.grad_hidden.to(weights.dtype()));
  FastTrainingPass pass(weights, adapter, c.tokens, c.rows, activation_bytes);
  Errors errors;
  errors.value = RelativeError(pass.hidden(), expected.detach());
  const std::vector<LoraLayer> gradients =
      pass.Backward(c.grad_hidden.to(weights.dtype()));
  std::vector<at::Tensor> found;
  for (size_t layer = 0; layer < gradients.size(); ++layer) {
    for (size_t p = 0; p < gradients[layer].size(); ++p) {
      const LoraPair& gradient = gradients[layer][p];
      EXPECT_EQ(gradient.a.defined(), adapter.layers[layer][p].a.defined());
      if (!gradient.a.defined()) continue;
      found.push_back(gradient.a.flatten());
      found.push_back(gradient.b.flatten());
    }
  }
  std::vector<at::Tensor> wanted;
  for (const at::Tensor& tensor : adapter.Tensors()) {
    wanted.push_back(tensor.grad().flatten());
    errors.worst =
        std::max(errors.worst,
                 RelativeError(found.at(wanted.size() - 1), wanted.back()));
  }
  errors.gradient = RelativeError(at::cat(found), at::cat(wanted));
  return errors;
}

TEST(FastTrainingPassTest, AgreesWithAutogradInEveryFamily) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeModel(family);
    const Errors errors = CompareWithAutograd(
        *weights, MakeTrainedAdapter(weights->config), kUnlimitedActivations);
    std::printf("%s: value %.1e, gradient %.1e, one tensor's %.1e\n",
                family.c_str(),
                errors.value,
                errors.gradient,
                errors.worst);
    EXPECT_LE(errors.value, 1e-6) << family;
    EXPECT_LE(errors.gradient, 1e-6) << family;
    EXPECT_LE(errors.worst, 5e-6) << family;
  }
}

// On its way through a layer a number is rounded to bfloat16 at most
// kRoundingsALayer times forward (norm; projection and its update; rotation;
// probabilities; attention; projection, its update and the sum with the input;
// the same for the MLP with its product), and as often backward. Together n
// independent roundings of at most u = 2^-8 are sqrt(n) u of a vector's length.
constexpr double kRounding = 1.0 / 256;

double RoundingsOf(const ModelWeights& weights) {
  constexpr double kRoundingsALayer = 16;
  return kRoundingsALayer * static_cast<double>(weights.config.num_layers) + 2;
}

// Autograd rounds as often, at other places.
TEST(FastTrainingPassTest, AgreesWithAutogradOnABfloat16Base) {
  const auto weights = MakeModel("qwen3", at::kBFloat16);
  const Errors errors = CompareWithAutograd(
      *weights, MakeTrainedAdapter(weights->config), kUnlimitedActivations);
  const double roundings = 2 * RoundingsOf(*weights);
  std::printf("value %.1e of %.1e, gradient %.1e of %.1e\n",
              errors.value,
              std::sqrt(roundings) * kRounding,
              errors.gradient,
              std::sqrt(2 * roundings) * kRounding);
  EXPECT_LE(errors.value, std::sqrt(roundings) * kRounding);
  EXPECT_LE(errors.gradient, std::sqrt(2 * roundings) * kRounding);
}

std::shared_ptr<const ModelWeights> Widened(const ModelWeights& weights) {
  auto wide = std::make_shared<ModelWeights>(weights);
  const auto widen = [](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(at::kFloat);
  };
  widen(wide->embedding);
  widen(wide->head);
  widen(wide->final_norm);
  for (LayerWeights& layer : wide->layers) {
    for (at::Tensor& tensor : layer.weight) widen(tensor);
    for (at::Tensor& tensor : layer.bias) widen(tensor);
    for (at::Tensor& tensor : layer.norms) widen(tensor);
  }
  return wide;
}

TEST(FastTrainingPassTest, Bfloat16StaysWithinItsRoundingsOfFloat32) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeModel(family, at::kBFloat16);
    const auto wide = Widened(*weights);
    const Adapter adapter = MakeTrainedAdapter(weights->config);
    const Case c;
    const at::Tensor grad = c.grad_hidden.to(at::kBFloat16);
    FastTrainingPass pass(
        *weights, adapter, c.tokens, c.rows, kUnlimitedActivations);
    FastTrainingPass exact(
        *wide, adapter, c.tokens, c.rows, kUnlimitedActivations);
    ASSERT_EQ(pass.hidden().scalar_type(), at::kBFloat16);
    const double value =
        RelativeError(pass.hidden().to(at::kFloat), exact.hidden());
    std::vector<at::Tensor> found;
    std::vector<at::Tensor> wanted;
    const auto flatten = [](const std::vector<LoraLayer>& gradients,
                            std::vector<at::Tensor>* all) {
      for (const LoraLayer& layer : gradients) {
        for (const LoraPair& pair : layer) {
          if (!pair.a.defined()) continue;
          all->push_back(pair.a.flatten());
          all->push_back(pair.b.flatten());
        }
      }
    };
    flatten(pass.Backward(grad), &found);
    flatten(exact.Backward(grad.to(at::kFloat)), &wanted);
    const double gradient = RelativeError(at::cat(found), at::cat(wanted));
    const double roundings = RoundingsOf(*weights);
    std::printf("%s: value %.1e of %.1e, gradient %.1e of %.1e\n",
                family.c_str(),
                value,
                std::sqrt(roundings) * kRounding,
                gradient,
                std::sqrt(2 * roundings) * kRounding);
    EXPECT_LE(value, std::sqrt(roundings) * kRounding) << family;
    EXPECT_LE(gradient, std::sqrt(2 * roundings) * kRounding) << family;
  }
}

TEST(FastTrainingPassTest, TrainsTheTargetedProjectionsAlone) {
  const auto weights = MakeModel("qwen2");
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"q_proj", "v_proj"},
        std::vector<std::string>{"up_proj", "o_proj"}}) {
    const Errors errors = CompareWithAutograd(
        *weights,
        MakeTrainedAdapter(weights->config,
                           {.rank = 4, .alpha = 8, .targets = targets}),
        0);
    EXPECT_LE(errors.value, 1e-6);
    EXPECT_LE(errors.gradient, 1e-6);
  }
}

TEST(FastTrainingPassTest, TheMemoryBudgetChangesNoBit) {
  const auto weights = MakeModel("qwen3");
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Case c;
  const int64_t layer_bytes =
      94 * ActivationBytesPerRow(weights->config, 4, at::kFloat);
  std::vector<std::vector<LoraLayer>> gradients;
  int64_t kept = 0;
  for (const int64_t budget :
       {int64_t{0}, layer_bytes, 2 * layer_bytes, kUnlimitedActivations}) {
    FastTrainingPass pass(*weights, adapter, c.tokens, c.rows, budget);
    EXPECT_EQ(pass.num_kept_layers(), std::min<int64_t>(kept++, 2));
    EXPECT_TRUE(
        at::equal(pass.hidden(),
                  ForwardWithoutGradient(*weights, adapter, c.tokens, c.rows)));
    gradients.push_back(pass.Backward(c.grad_hidden));
  }
  for (const auto& other : gradients) {
    for (size_t layer = 0; layer < other.size(); ++layer) {
      for (size_t p = 0; p < other[layer].size(); ++p) {
        EXPECT_TRUE(at::equal(other[layer][p].a, gradients[0][layer][p].a));
        EXPECT_TRUE(at::equal(other[layer][p].b, gradients[0][layer][p].b));
      }
    }
  }
}

// Computes the first chunks of a sequence.
SequencePrefix MakePrefix(const ModelWeights& weights,
                          const Adapter& adapter,
                          const at::Tensor& ids,
                          int64_t chunk_tokens,
                          int64_t chunks) {
  SequencePrefix prefix;
  std::vector<at::Tensor> past;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    prefix.push_back(
        ForwardChunk(weights,
                     &adapter,
                     ids.narrow(0, chunk * chunk_tokens, chunk_tokens),
                     past,
                     ChunkKeeps::kLayerInputs));
    past.push_back(prefix.back().keys_values);
  }
  return prefix;
}

// Returns the errors of a pass behind chunks against a pass that computes
// everything.
Errors CompareChunksWithWhole(const std::string& family, at::ScalarType dtype) {
  const auto weights = MakeModel(family, dtype);
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Case c;
  FastTrainingPass whole(
      *weights, adapter, c.tokens, c.rows, kUnlimitedActivations);
  // The sequences have 23, 1 and 70 tokens; rows 60 and 61 are in a chunk, row
  // 93 is in a tail.
  FastTrainingPass pass(
      *weights,
      adapter,
      c.tokens,
      c.rows,
      kUnlimitedActivations,
      {MakePrefix(*weights, adapter, c.tokens.ids.narrow(0, 0, 23), 8, 2),
       {},
       MakePrefix(*weights, adapter, c.tokens.ids.narrow(0, 24, 70), 32, 2)});
  EXPECT_EQ(pass.num_kept_layers(), 0);
  Errors errors;
  errors.value = RelativeError(pass.hidden(), whole.hidden());
  const at::Tensor grad = c.grad_hidden.to(dtype);
  const std::vector<LoraLayer> expected = whole.Backward(grad);
  const std::vector<LoraLayer> found = pass.Backward(grad);
  for (size_t layer = 0; layer < found.size(); ++layer) {
    for (size_t p = 0; p < found[layer].size(); ++p) {
      for (const auto side : {&LoraPair::a, &LoraPair::b}) {
        errors.worst = std::max(
            errors.worst,
            RelativeError(found[layer][p].*side, expected[layer][p].*side));
      }
    }
  }
  std::printf("%s: value %.1e, worst gradient %.1e\n",
              family.c_str(),
              errors.value,
              errors.worst);
  return errors;
}

TEST(FastTrainingPassTest, BehindChunksItHasTheBitsOfOnePassInFloat32) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const Errors errors = CompareChunksWithWhole(family, at::kFloat);
    EXPECT_EQ(errors.value, 0.0) << family;
    EXPECT_EQ(errors.worst, 0.0) << family;
  }
}

TEST(FastTrainingPassTest, BehindChunksItStaysWithinBfloat16sRounding) {
  const Errors errors = CompareChunksWithWhole("qwen3", at::kBFloat16);
  EXPECT_LE(errors.value, 1e-2);
  EXPECT_LE(errors.worst, 5e-2);
}

TEST(FastTrainingPassTest, APrefixThatLeavesNoTailIsAnError) {
  const auto weights = MakeModel("qwen3");
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const PackedTokens tokens = PackTokens({RandomModelIds(16, 1)}, at::kCPU);
  EXPECT_THROW(
      FastTrainingPass(*weights,
                       adapter,
                       tokens,
                       at::tensor({15}, at::kLong),
                       0,
                       {MakePrefix(*weights, adapter, tokens.ids, 8, 2)}),
      c10::Error);
}

}  // namespace
}  // namespace dapd
