// Runs the training pass of rows C3 and G3: forward and backward over the
// packed live views of some samples.
//
//   training_benchmark MODEL ADAPTER CASE.json DEVICE PRECISION BUDGET_MIB
//
// CASE.json has "views", each {"input_ids", "scored_from", "scored_count"}. The
// loss is <hidden, G> with G of ProbeGradient, over the scored rows in order.
// An empty request is a round. "gemm" is a bare product of the passes' usual
// shape, by LibTorch and by the passes' own kernel. Any other request is a path
// that gets the value and the gradients.

#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "common/model/fast/fast_training_pass.h"
#include "common/model/fast/matrix_product.h"
#include "common/model/weights/placement.h"
#include "common/objective/view_pass.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/torch_bridge.h"
#include "tests/benchmarks/contender.h"

namespace dapd {
namespace {

// A copy to the host waits for the work that was queued before it.
void Wait(at::Device device) {
  if (device.is_cuda()) at::zeros({1}, device).item<float>();
}

double Seconds(at::Device device, const std::function<void()>& work) {
  Wait(device);
  const auto start = std::chrono::steady_clock::now();
  work();
  Wait(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// Returns sin(0.37 i + 0.11 j), [rows, hidden].
at::Tensor ProbeGradient(int64_t rows, int64_t hidden) {
  return (at::arange(rows, at::kDouble).unsqueeze(1) * 0.37 +
          at::arange(hidden, at::kDouble).unsqueeze(0) * 0.11)
      .sin();
}

// Counts multiplications and additions of a forward and backward pass: products
// of the base (2 per weight forward, 2 for the input's gradient, none for its
// own), of LoRA (2 forward, 4 backward), and the scores below the diagonal of
// attention (2 products forward, 5 backward). Skipped work is not counted: the
// input's gradient of the first layer's q, k and v, and the work after the last
// layer's attention for rows without a score.
double CountFlops(const ModelWeights& weights,
                  const Adapter& adapter,
                  const PackedTokens& tokens,
                  double scored_rows) {
  const ModelConfig& config = weights.config;
  const auto rows = static_cast<double>(tokens.offsets.back());
  const auto layers = static_cast<double>(config.num_layers);
  double flops = 0;
  for (const ProjectionRecipe& own :
       LayerRecipeOf(config, /*layer=*/0).projections) {
    const auto base = static_cast<double>(own.in * own.out);
    const auto lora =
        static_cast<double>(adapter.config.rank * (own.in + own.out));
    const double a_row = 4 * base + 6 * lora;
    const bool before_attention = own.group == 0;
    flops += a_row * rows * (layers - 1);
    flops += a_row * (before_attention ? rows : scored_rows);
    if (before_attention) flops -= 2 * base * rows;
  }
  double pairs = 0;
  for (size_t i = 0; i + 1 < tokens.offsets.size(); ++i) {
    const auto length =
        static_cast<double>(tokens.offsets[i + 1] - tokens.offsets[i]);
    pairs += length * (length + 1) / 2;
  }
  return flops + 14 * pairs * layers *
                     static_cast<double>(config.num_heads * config.head_dim);
}

class TrainingContender {
 public:
  TrainingContender(char** arguments)
      : device_(OpenDevice(
                    {.device = ParseName<DeviceChoice>(arguments[4]).value()})
                    .value()),
        weights_(
            LoadModelWeights(arguments[1],
                             TypeOf(ParseName<Precision>(arguments[5]).value()),
                             device_)
                .value()),
        adapter_(ReadAdapter(arguments[2], weights_->config, device_).value()),
        activation_bytes_(std::stoll(arguments[6]) << 20) {
    std::ifstream file(arguments[3]);
    const nlohmann::json json = nlohmann::json::parse(file);
    for (const auto& view : json.at("views")) {
      views_.push_back({.input_ids = view.at("input_ids"),
                        .scored_from = view.at("scored_from"),
                        .scored_count = view.at("scored_count")});
    }
    std::vector<const View*> pointers;
    for (const View& view : views_) pointers.push_back(&view);
    packed_ = PackViews(pointers, device_);
    probe_ = ProbeGradient(packed_.rows.size(0), weights_->config.hidden_size)
                 .to(at::TensorOptions(weights_->dtype()).device(device_));
  }

  nlohmann::json Ready() const {
    return {{"tokens", packed_.tokens.offsets.back()},
            {"flops",
             CountFlops(*weights_,
                        adapter_,
                        packed_.tokens,
                        static_cast<double>(packed_.rows.size(0)))}};
  }

  nlohmann::json Round(const std::string& request) {
    if (request == "gemm") return Gemm();
    std::vector<LoraLayer> gradients;
    at::Tensor hidden;
    int64_t kept = 0;
    const double seconds = Seconds(device_, [&] {
      FastTrainingPass pass(
          *weights_, adapter_, packed_.tokens, packed_.rows, activation_bytes_);
      kept = pass.num_kept_layers();
      hidden = pass.hidden();
      gradients = pass.Backward(probe_);
    });
    if (!request.empty()) Write(request, hidden, gradients);
    return {{"seconds", seconds}, {"kept_layers", kept}};
  }

 private:
  // Multiplies x W^T with gate_proj's W. x is random, because a GPU has a
  // higher clock if all numbers are equal.
  nlohmann::json Gemm() const {
    const at::Tensor& weight = weights_->layers[0].weight[IndexOf(
        LayerRecipeOf(weights_->config, /*layer=*/0).mlp.gate)];
    const int64_t rows = packed_.tokens.offsets.back();
    const at::Tensor x = at::randn({rows, weight.size(1)}, weight.options());
    constexpr int kRepeats = 4;
    const double flops =
        kRepeats * 2.0 * static_cast<double>(rows * weight.numel());
    const double libtorch = Seconds(device_, [&] {
      for (int i = 0; i < kRepeats; ++i) at::mm(x, weight.t());
    });
    const double own = Seconds(device_, [&] {
      for (int i = 0; i < kRepeats; ++i) MatrixProduct(x, weight.t());
    });
    return {{"seconds", libtorch + own},
            {"libtorch_flops_a_second", flops / libtorch},
            {"own_flops_a_second", flops / own}};
  }

  void Write(const std::string& path,
             const at::Tensor& hidden,
             const std::vector<LoraLayer>& gradients) const {
    NamedTensors tensors = {
        {"hidden", FromTorch(hidden.to(at::kFloat).cpu()).value()}};
    const std::vector<std::string> names = adapter_.Names();
    for (const LoraLayer& layer : gradients) {
      for (const LoraPair& pair : layer) {
        if (!pair.a.defined()) continue;
        tensors.push_back(
            {names[tensors.size() - 1], FromTorch(pair.a.cpu()).value()});
        tensors.push_back(
            {names[tensors.size() - 1], FromTorch(pair.b.cpu()).value()});
      }
    }
    const absl::Status status = WriteSafetensors(path, tensors, {});
    TORCH_CHECK(status.ok(), status.ToString());
  }

  at::Device device_;
  std::shared_ptr<const ModelWeights> weights_;
  Adapter adapter_;
  int64_t activation_bytes_;
  std::vector<View> views_;
  PackedViews packed_;
  at::Tensor probe_;
};

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  dapd::TrainingContender contender(argv);
  return dapd::ServeRounds(contender.Ready(), [&](const std::string& request) {
    return contender.Round(request);
  });
}
