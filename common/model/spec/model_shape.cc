#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/model/spec/model_config.h"

namespace dapd {

absl::Status CheckSplit(const ModelConfig& config, int64_t ranks) {
  const auto check = [&](const char* what, int64_t count) -> absl::Status {
    if (count % ranks == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the model's ",
                     count,
                     " ",
                     what,
                     " cannot be split over ",
                     ranks,
                     " ranks; choose a number of ranks that divides them"));
  };
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerRecipe recipe = LayerRecipeOf(config, layer);
    for (const absl::Status& status :
         {check("attention heads", recipe.attention.heads),
          check("key-value heads", recipe.attention.kv_heads),
          check("MLP columns", recipe.mlp.width)}) {
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

int64_t ModelConfig::NumParameters() const {
  const int64_t tables = (tied_embeddings ? 1 : 2) * vocab_size * hidden_size;
  int64_t parameters = tables + hidden_size;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    parameters += LayerRecipeOf(*this, layer).NumParameters();
  }
  return parameters;
}

int64_t NumLoraParameters(const ModelConfig& config,
                          int64_t rank,
                          const std::vector<std::string>& targets) {
  int64_t parameters = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const ProjectionRecipe& projection :
         LayerRecipeOf(config, layer).projections) {
      if (std::ranges::count(targets, projection.name) == 0) continue;
      parameters += rank * (projection.in + projection.out);
    }
  }
  return parameters;
}

}  // namespace dapd
