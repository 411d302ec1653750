#include "common/model/weights/adapter.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "common/model/weights/weight_names.h"

namespace dapd {

std::vector<at::Tensor> Adapter::Tensors() const {
  std::vector<at::Tensor> tensors;
  for (const auto& layer : layers) {
    for (const LoraPair& pair : layer) {
      if (!pair.a.defined()) continue;
      tensors.push_back(pair.a);
      tensors.push_back(pair.b);
    }
  }
  return tensors;
}

std::vector<std::string> Adapter::Names() const {
  std::vector<std::string> names;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const Projection projection : AllProjections()) {
      if (!layers[layer][static_cast<size_t>(projection)].a.defined()) {
        continue;
      }
      const std::string module = absl::StrCat(
          "base_model.model.",
          ProjectionModule(static_cast<int64_t>(layer), projection));
      names.push_back(absl::StrCat(module, ".lora_A.weight"));
      names.push_back(absl::StrCat(module, ".lora_B.weight"));
    }
  }
  return names;
}

int64_t Adapter::NumModules() const {
  return static_cast<int64_t>(Tensors().size()) / 2;
}

Adapter Adapter::Clone() const {
  Adapter copy = *this;
  for (auto& layer : copy.layers) {
    for (LoraPair& pair : layer) {
      if (!pair.a.defined()) continue;
      pair.a = pair.a.detach().clone();
      pair.b = pair.b.detach().clone();
    }
  }
  return copy;
}

Adapter MakeFreshAdapter(const ModelConfig& model,
                         const LoraConfig& lora,
                         uint64_t seed,
                         at::Device device) {
  at::NoGradGuard no_grad;
  Adapter adapter;
  adapter.config = lora;
  if (adapter.config.targets.empty()) {
    adapter.config.targets = AllProjections();
  }
  at::Generator generator = at::detail::createCPUGenerator(seed);
  adapter.layers.resize(static_cast<size_t>(model.num_layers));
  for (auto& layer : adapter.layers) {
    for (const Projection target : adapter.config.targets) {
      const int64_t in = ProjectionIn(model, target);
      const double bound = 1.0 / std::sqrt(static_cast<double>(in));
      LoraPair& pair = layer[static_cast<size_t>(target)];
      pair.a = at::empty({lora.rank, in}, at::kFloat)
                   .uniform_(-bound, bound, generator)
                   .to(device);
      pair.b = at::zeros({ProjectionOut(model, target), lora.rank},
                         at::TensorOptions().dtype(at::kFloat).device(device));
    }
  }
  return adapter;
}

AdapterReport InspectAdapter(const Adapter& adapter) {
  at::NoGradGuard no_grad;
  AdapterReport report;
  double a2 = 0.0;
  double b2 = 0.0;
  double delta2 = 0.0;
  report.modules_expected = static_cast<int64_t>(adapter.layers.size() *
                                                 adapter.config.targets.size());
  for (size_t i = 0; i < adapter.layers.size(); ++i) {
    double layer2 = 0.0;
    for (const LoraPair& pair : adapter.layers[i]) {
      if (!pair.a.defined()) continue;
      ++report.modules_applied;
      const at::Tensor a = pair.a.to(at::kDouble);
      const at::Tensor b = pair.b.to(at::kDouble);
      a2 += a.square().sum().item<double>();
      b2 += b.square().sum().item<double>();
      // |B A|^2 = trace((B^T B)(A A^T)), without the [out, in] product.
      layer2 += (b.t().matmul(b) * a.matmul(a.t())).sum().item<double>();
    }
    const double scale = adapter.config.scale();
    layer2 = std::max(0.0, layer2) * scale * scale;
    report.layers.push_back({static_cast<int64_t>(i), std::sqrt(layer2)});
    delta2 += layer2;
  }
  report.norm_a = std::sqrt(a2);
  report.norm_b = std::sqrt(b2);
  report.norm_delta = std::sqrt(delta2);
  report.changes_nothing = report.norm_delta == 0.0;
  return report;
}

}  // namespace dapd
