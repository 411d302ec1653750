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
  for (const absl::Status& status :
       {check("attention heads", config.num_heads),
        check("key-value heads", config.num_kv_heads),
        check("MLP columns", config.intermediate_size)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

const char* ProjectionName(Projection projection) {
  switch (projection) {
    case Projection::kQ:
      return "q_proj";
    case Projection::kK:
      return "k_proj";
    case Projection::kV:
      return "v_proj";
    case Projection::kO:
      return "o_proj";
    case Projection::kGate:
      return "gate_proj";
    case Projection::kUp:
      return "up_proj";
    case Projection::kDown:
      return "down_proj";
  }
  return "";
}

std::string ProjectionModule(int64_t layer, Projection projection) {
  const bool in_mlp = projection == Projection::kGate ||
                      projection == Projection::kUp ||
                      projection == Projection::kDown;
  return absl::StrCat("model.layers.",
                      layer,
                      in_mlp ? ".mlp." : ".self_attn.",
                      ProjectionName(projection));
}

int64_t ProjectionIn(const ModelConfig& config, Projection projection) {
  switch (projection) {
    case Projection::kO:
      return config.num_heads * config.head_dim;
    case Projection::kDown:
      return config.intermediate_size;
    default:
      return config.hidden_size;
  }
}

int64_t ProjectionOut(const ModelConfig& config, Projection projection) {
  switch (projection) {
    case Projection::kQ:
      return config.num_heads * config.head_dim;
    case Projection::kK:
    case Projection::kV:
      return config.num_kv_heads * config.head_dim;
    case Projection::kGate:
    case Projection::kUp:
      return config.intermediate_size;
    default:
      return config.hidden_size;
  }
}

bool ProjectionHasBias(const ModelConfig& config, Projection projection) {
  switch (projection) {
    case Projection::kQ:
    case Projection::kK:
    case Projection::kV:
      return config.qkv_bias;
    case Projection::kO:
      return config.output_bias;
    default:
      return config.mlp_bias;
  }
}

int64_t ModelConfig::NumParameters() const {
  int64_t layer = 2 * hidden_size + (qk_norm ? 2 * head_dim : 0);
  for (int p = 0; p < kNumProjections; ++p) {
    const auto projection = static_cast<Projection>(p);
    const int64_t out = ProjectionOut(*this, projection);
    layer += out * ProjectionIn(*this, projection);
    if (ProjectionHasBias(*this, projection)) layer += out;
  }
  const int64_t tables = (tied_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return num_layers * layer + tables + hidden_size;
}

int64_t NumLoraParameters(const ModelConfig& config,
                          int64_t rank,
                          const std::vector<Projection>& targets) {
  int64_t layer = 0;
  for (const Projection target : targets) {
    layer +=
        rank * (ProjectionIn(config, target) + ProjectionOut(config, target));
  }
  return config.num_layers * layer;
}

std::vector<Projection> AllProjections() {
  std::vector<Projection> all;
  for (int p = 0; p < kNumProjections; ++p) {
    all.push_back(static_cast<Projection>(p));
  }
  return all;
}

}  // namespace dapd
