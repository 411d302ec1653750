#include "common/model/weights/adapter.h"

#include <algorithm>
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
    for (size_t p = 0; p < layers[layer].size(); ++p) {
      if (!layers[layer][p].a.defined()) continue;
      const std::string module =
          absl::StrCat("base_model.model.", modules[layer][p]);
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

Adapter MakeEmptyAdapter(const ModelConfig& model, const LoraConfig& lora) {
  Adapter adapter{.config = lora};
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerRecipe recipe = LayerRecipeOf(model, layer);
    adapter.layers.emplace_back(recipe.projections.size());
    std::vector<std::string>& modules = adapter.modules.emplace_back();
    for (const ProjectionRecipe& projection : recipe.projections) {
      modules.push_back(ModulePath(layer, projection.module));
    }
  }
  return adapter;
}

Adapter MakeUnsetAdapter(const ModelConfig& model,
                         const LoraConfig& lora,
                         at::Device device) {
  Adapter adapter = MakeEmptyAdapter(model, lora);
  adapter.config.targets = TargetsOf(lora, model);
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  for (size_t layer = 0; layer < adapter.layers.size(); ++layer) {
    const LayerRecipe recipe =
        LayerRecipeOf(model, static_cast<int64_t>(layer));
    for (const Projection projection : recipe.All()) {
      const ProjectionRecipe& own = recipe[projection];
      if (std::ranges::count(adapter.config.targets, own.name) == 0) continue;
      LoraPair& pair = adapter.layers[layer][IndexOf(projection)];
      pair.a = at::empty({lora.rank, own.in}, options);
      pair.b = at::empty({own.out, lora.rank}, options);
    }
  }
  return adapter;
}

Adapter MakeFreshAdapter(const ModelConfig& model,
                         const LoraConfig& lora,
                         uint64_t seed,
                         at::Device device) {
  at::NoGradGuard no_grad;
  Adapter adapter = MakeUnsetAdapter(model, lora, device);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (LoraLayer& layer : adapter.layers) {
    for (LoraPair& pair : layer) {
      if (!pair.a.defined()) continue;
      const double bound = 1.0 / std::sqrt(static_cast<double>(pair.a.size(1)));
      pair.a.copy_(at::empty(pair.a.sizes(), at::kFloat)
                       .uniform_(-bound, bound, generator));
      pair.b.zero_();
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
