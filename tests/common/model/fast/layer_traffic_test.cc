// Counts what a layer's forward and backward pass moves through memory on a GPU
// that the host simulates: the bytes of the tensors that each operation reads
// and writes, against the least that a layer with LoRA needs, and the number of
// launches.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "ATen/record_function.h"
#include "common/model/fast/layer_pass.h"
#include "common/model/fast/packed_projections.h"
#include "common/model/fast/packed_weights.h"
#include "common/model/fast/plain_projections.h"
#include "tests/fakes/device_rows_on_host.h"
#include "tests/fakes/model_shapes.h"
#include "tests/fakes/relative_error.h"
#include "tests/fakes/same_bits.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {
namespace {

// The layer, its pack of 16k tokens and its rank are a sixteenth of Qwen3-4B's
// sizes, except that the rank has to be a multiple of 8.
constexpr int64_t kTokens = 1024;
constexpr int64_t kRank = 8;

const at::Device kSimulated(at::kCUDA, 0);  // tests/fakes/torch_device

int64_t BytesOf(const at::Tensor& tensor) {
  return tensor.defined()
             ? tensor.numel() * static_cast<int64_t>(tensor.element_size())
             : 0;
}

template <typename Visit>
void ForEachTensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) visit(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

// Counts LibTorch's operations of this thread, outermost calls only.
class Meter {
 public:
  Meter() {
    current_ = this;
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback(&Begin, &End)
                                       .needsInputs(true)
                                       .needsOutputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
    fake::TakeRowBytes();
  }
  ~Meter() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }

  // The bytes include those that the simulated kernels move.
  int64_t bytes() { return bytes_ += fake::TakeRowBytes(); }

 private:
  static std::unique_ptr<at::ObserverContext> Begin(
      const at::RecordFunction& function) {
    if (current_->depth_++ == 0) {
      current_->inputs_.clear();
      for (const c10::IValue& value : function.inputs()) {
        ForEachTensor(value, [](const at::Tensor& tensor) {
          current_->inputs_.push_back(tensor);
        });
      }
    }
    return nullptr;
  }

  static void End(const at::RecordFunction& function, at::ObserverContext*) {
    if (--current_->depth_ == 0) current_->Count(function);
  }

  void Count(const at::RecordFunction& function) {
    constexpr std::string_view kUncounted[] = {
        "aten::empty", "aten::empty_like", "aten::detach"};
    const std::string_view name = function.name();
    for (const std::string_view other : kUncounted) {
      if (name == other) return;
    }
    const bool is_out = function.operator_name().has_value() &&
                        function.operator_name()->overload_name.find("out") !=
                            std::string::npos;
    const bool is_in_place = name.back() == '_';
    int64_t bytes = 0;
    bool is_view = false;
    for (const c10::IValue& value : function.outputs()) {
      ForEachTensor(value, [&](const at::Tensor& output) {
        bytes += BytesOf(output);
        if (is_out || is_in_place) return;
        for (const at::Tensor& input : inputs_) {
          is_view = is_view || (input.defined() && output.defined() &&
                                input.is_alias_of(output));
        }
      });
    }
    if (is_view) return;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      // An output that the caller provides is not read.
      if (is_out && i + 1 == inputs_.size()) break;
      bytes += BytesOf(inputs_[i]);
    }
    bytes_ += bytes;
  }

  inline static Meter* current_ = nullptr;
  at::CallbackHandle handle_ = 0;
  int depth_ = 0;
  std::vector<at::Tensor> inputs_;
  int64_t bytes_ = 0;
};

struct Layer {
  ModelConfig config = SixteenthOfFourBillion();
  LayerWeights weights;
  LoraLayer lora;
  RotaryAngles angles;
  at::Tensor x;
  at::Tensor grad;

  Layer(at::ScalarType dtype, at::Device device) {
    at::Generator generator = at::detail::createCPUGenerator(3);
    // Both dtypes hold these numbers.
    const auto random = [&](at::IntArrayRef shape, double spread) {
      return (at::randn(shape, generator) * spread)
          .to(at::kBFloat16)
          .to(device, dtype);
    };
    const int64_t hidden = config.hidden_size;
    const LayerRecipe recipe = LayerRecipeOf(config, /*layer=*/0);
    for (const NormRecipe& norm : recipe.norms) {
      weights.norms[static_cast<size_t>(norm.place)] =
          random({norm.size}, 0.1).add_(1.0);
    }
    weights.bias.resize(recipe.projections.size());
    for (const ProjectionRecipe& own : recipe.projections) {
      weights.weight.push_back(
          random({own.out, own.in}, 1.0 / std::sqrt(own.in)));
      lora.push_back({.a = random({kRank, own.in}, 1.0 / std::sqrt(own.in)),
                      .b = random({own.out, kRank}, 0.1)});
    }
    x = random({kTokens, hidden}, 1.0);
    grad = random({kTokens, hidden}, 1.0);
    const at::Tensor half = at::arange(kTokens / 2, at::kLong);
    angles = MakeRotaryAngles(config, at::cat({half, half}).to(device), dtype);
  }

  struct Result {
    at::Tensor y;
    at::Tensor grad_x;
    LoraLayer gradients;
  };

  Result Run() const {
    const VariableLengthAttention attention({0, kTokens / 2, kTokens},
                                            x.device());
    const LayerPass pass(config, weights, angles);
    const PlainProjections projections(
        LayerRecipeOf(config, 0), weights, &lora, 2.0);
    Result result{.gradients = LoraLayer(lora.size())};
    LayerActivations kept;
    ResidualStream stream{x};
    pass.Forward(projections, attention, /*rows=*/{}, &stream, &kept);
    result.y = stream.Sum();
    result.grad_x = pass.Backward(projections,
                                  attention,
                                  /*rows=*/{},
                                  grad.clone(),
                                  std::move(kept),
                                  /*needs_input_gradient=*/true,
                                  &result.gradients);
    return result;
  }
};

// Holds the layer's weights as a teacher has them, with its adapter applied.
class PackedTeacher {
 public:
  explicit PackedTeacher(const Layer& layer) : weights_(Model(layer)) {
    const Adapter adapter{.config = {.rank = kRank, .alpha = 2.0 * kRank},
                          .layers = {layer.lora}};
    packed_ = std::make_unique<PackedWeights>(
        weights_, AdapterForm::kColumns, &adapter.config, /*merge=*/nullptr);
    packed_->Apply(&adapter);
  }

  // Returns the output of the layer for the input x + `delta`; it may overwrite
  // this input.
  ResidualStream Forward(ResidualStream stream,
                         const RotaryAngles& angles,
                         const VariableLengthAttention& attention,
                         bool with_adapter) const {
    const PackedPass pass{.with_adapter = with_adapter};
    LayerPass(weights_.config, weights_.layers[0], angles)
        .Forward(PackedProjections(packed_->layers()[0], pass),
                 attention,
                 /*rows=*/{},
                 &stream,
                 /*activations=*/nullptr);
    return stream;
  }

 private:
  static ModelWeights Model(const Layer& layer) {
    ModelWeights weights;
    weights.config = layer.config;
    weights.config.num_layers = 1;
    weights.layers = {layer.weights};
    return weights;
  }

  ModelWeights weights_;
  std::unique_ptr<PackedWeights> packed_;
};

// Returns the numbers of 2 bytes per token that a pass with all activations
// kept must move if every product, attention and element-wise function reads
// its operands and writes its result once. In each direction x A^T of a pair is
// a separate product; the pair's B and A share the base's products.
int64_t LeastNumbers(const ModelConfig& config) {
  const int64_t h = config.hidden_size;
  const int64_t i = config.intermediate_size;
  const int64_t q = config.num_heads * config.head_dim;
  const int64_t k = config.num_kv_heads * config.head_dim;
  const int64_t qkv = q + 2 * k;
  const int64_t r = kRank;
  const int64_t forward = 2 * h                                // norm
                          + (h + 3 * r) + (h + 3 * r + qkv)    // q, k, v
                          + 2 * (q + k)                        // rotation
                          + qkv + q                            // attention
                          + (q + r) + (q + r + h)              // o
                          + 4 * h                              // sum, norm
                          + (h + 2 * r) + (h + 2 * r + 2 * i)  // gate, up
                          + 3 * i                              // SwiGLU
                          + (i + r) + (i + r + 2 * h);         // down, sum
  const auto pair = [r](int64_t in, int64_t out, int64_t pairs) {
    return (out + pairs * r)    // of x A^T
           + (out + pairs * r)  // of B
           + (pairs * r + in);  // of A
  };
  const int64_t backward = pair(i, h, 1) + (h + r + i)  // down
                           + (3 * i + 3 * i)            // SwiGLU and again
                           + pair(h, 2 * i, 2) +
                           (2 * i + 2 * r + h)            // gate, up
                           + h + 4 * h                    // norm and again
                           + pair(q, h, 1) + (h + r + q)  // o
                           + 2 * (q + k)                  // rotation again
                           + q + qkv + q + qkv            // attention
                           + 3 * (q + k)                  // rotation
                           + pair(h, qkv, 3) + (qkv + 3 * r + h)  // q, k, v
                           + h + 4 * h;  // norm and again
  return forward + backward;
}

// Counts weights and pairs; the products of both directions read each of them.
int64_t WeightBytes(const Layer& layer) {
  int64_t bytes = 0;
  for (size_t p = 0; p < layer.lora.size(); ++p) {
    bytes += 2 * BytesOf(layer.weights.weight[p]) +
             3 * (BytesOf(layer.lora[p].a) + BytesOf(layer.lora[p].b));
  }
  return bytes;
}

TEST(LayerTrafficTest, TrainingMovesLittleMoreThanItsTensorsNeed) {
  const at::NoGradGuard no_grad;
  const Layer layer(at::kBFloat16, kSimulated);
  int64_t bytes = 0;
  {
    Meter meter;
    layer.Run();
    bytes = meter.bytes() - 2 * BytesOf(layer.grad);  // the clone
  }
  const int64_t least =
      LeastNumbers(layer.config) * 2 * kTokens + WeightBytes(layer);
  const double ratio = static_cast<double>(bytes) / static_cast<double>(least);
  std::cout << bytes / kTokens << " bytes a token, " << ratio
            << " of the least\n";
  EXPECT_LE(ratio, 1.3);
  EXPECT_GE(ratio, 1.0) << "something is not counted";
}

// Counts the launches of a call and prints their names.
template <typename Call>
int64_t LaunchesOf(const std::string& what, const Call& call) {
  ResetWorkOfDevice();
  fake::TakeRowLaunches();
  call();
  const int64_t rows = fake::TakeRowLaunches();
  const int64_t launches = WorkOfDevice().num_launches() + rows;
  std::cout << what << ": " << launches << " launches, " << rows << " of rows";
  for (const auto& [name, count] : WorkOfDevice().launches) {
    std::cout << ", " << count << " " << name;
  }
  std::cout << "\n";
  return launches;
}

// docs/cuda.md uses these numbers of launches.
TEST(LayerTrafficTest, ALayerIsAFewLaunches) {
  const at::NoGradGuard no_grad;
  // The number of rows lies between the layer's widths, as a teacher's 4,096
  // rows lie between the widths of 4B's layer.
  constexpr int64_t kRows = 400;
  const Layer layer(at::kBFloat16, kSimulated);
  const VariableLengthAttention attention({0, kRows}, kSimulated);
  const at::Tensor x = layer.x.narrow(0, 0, kRows);
  const RotaryAngles angles{layer.angles.cos.narrow(0, 0, kRows),
                            layer.angles.sin.narrow(0, 0, kRows)};
  const auto pass = [&](const LoraLayer* lora) {
    ResidualStream stream{x};
    LayerPass(layer.config, layer.weights, angles)
        .Forward(PlainProjections(
                     LayerRecipeOf(layer.config, 0), layer.weights, lora, 2.0),
                 attention,
                 /*rows=*/{},
                 &stream,
                 /*activations=*/nullptr);
    stream.Sum();
  };
  EXPECT_LE(LaunchesOf("passed forward", [&] { pass(nullptr); }), 14);
  EXPECT_LE(WorkOfDevice().allocations, 17);
  // There are two more launches because this width, unlike the width of 4B, is
  // no multiple of 64 (MatrixProductIn).
  EXPECT_LE(
      LaunchesOf("passed forward with an adapter", [&] { pass(&layer.lora); }),
      38);
  EXPECT_LE(WorkOfDevice().allocations, 32);
  const PackedTeacher packed(layer);
  const at::Tensor delta = at::zeros_like(x);
  const auto score = [&](bool with_adapter) {
    packed.Forward({x, delta}, angles, attention, with_adapter);
  };
  EXPECT_LE(LaunchesOf("scored", [&] { score(false); }), 10);
  EXPECT_LE(WorkOfDevice().allocations, 14);
  EXPECT_LE(LaunchesOf("scored with an adapter", [&] { score(true); }), 15);
  EXPECT_LE(WorkOfDevice().allocations, 15);
  EXPECT_LE(LaunchesOf("trained", [&] { layer.Run(); }), 82);
  EXPECT_EQ(WorkOfDevice().waits, 0);
}

TEST(LayerTrafficTest, TheGpusWayGivesWhatFloat32Gives) {
  const at::NoGradGuard no_grad;
  const Layer::Result ours = Layer(at::kBFloat16, kSimulated).Run();
  const Layer::Result expected = Layer(at::kFloat, at::kCPU).Run();
  double worst = std::max(RelativeError(ours.y, expected.y),
                          RelativeError(ours.grad_x, expected.grad_x));
  for (size_t p = 0; p < ours.gradients.size(); ++p) {
    worst =
        std::max({worst,
                  RelativeError(ours.gradients[p].a, expected.gradients[p].a),
                  RelativeError(ours.gradients[p].b, expected.gradients[p].b)});
  }
  std::cout << "largest error " << worst << "\n";
  EXPECT_LT(worst, 2e-2);
}

// The layers that keep their inputs add first; the other layers leave the sum
// to the next norm.
TEST(LayerTrafficTest, ANormThatAddsGivesTheBitsOfASumAndItsNorm) {
  const at::NoGradGuard no_grad;
  for (const at::Device device : {at::Device(at::kCPU), kSimulated}) {
    const Layer layer(at::kBFloat16, device);
    const at::Tensor x = layer.x.narrow(0, 0, 32);
    const at::Tensor delta = layer.grad.narrow(0, 0, 32) * 0.3;
    ResidualStream adding{x, delta.clone()};
    const at::Tensor normed =
        adding.Norm(layer.weights.norm(NormPlace::kBeforeAttention), 1e-6);
    ResidualStream summed{x, delta.clone()};
    const at::Tensor sum = summed.Sum();
    EXPECT_TRUE(SameBits(adding.x.cpu(), sum.cpu())) << device;
    EXPECT_TRUE(SameBits(
        normed.cpu(),
        summed.Norm(layer.weights.norm(NormPlace::kBeforeAttention), 1e-6)
            .cpu()))
        << device;
  }
}

// Packed and plain weights round the update of an adapter at different places.
TEST(LayerTrafficTest, PackedWeightsGiveWhatFloat32Gives) {
  const at::NoGradGuard no_grad;
  const Layer layer(at::kBFloat16, kSimulated);
  const Layer exact(at::kFloat, at::kCPU);
  const PackedTeacher packed(layer);
  const VariableLengthAttention attention({0, kTokens / 2, kTokens},
                                          kSimulated);
  const VariableLengthAttention on_cpu({0, kTokens / 2, kTokens}, at::kCPU);
  for (const bool with_adapter : {false, true}) {
    ResidualStream expected{exact.x};
    LayerPass(exact.config, exact.weights, exact.angles)
        .Forward(PlainProjections(LayerRecipeOf(exact.config, 0),
                                  exact.weights,
                                  with_adapter ? &exact.lora : nullptr,
                                  2.0),
                 on_cpu,
                 /*rows=*/{},
                 &expected,
                 /*activations=*/nullptr);
    const ResidualStream stream = packed.Forward(
        {layer.x.clone()}, layer.angles, attention, with_adapter);
    const double error = RelativeError(stream.x + stream.delta, expected.Sum());
    std::cout << "largest error " << error << "\n";
    EXPECT_LT(error, 2e-2);
  }
}

}  // namespace
}  // namespace dapd
