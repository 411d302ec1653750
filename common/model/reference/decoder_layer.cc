#include "common/model/reference/decoder_layer.h"

#include "absl/functional/function_ref.h"

#include "common/model/reference/lora.h"

namespace dapd {
namespace {

// A projection of its input [N, in]: [N, out].
using Project = absl::FunctionRef<at::Tensor(Projection projection,
                                             const at::Tensor& input)>;

// The two updates of x [N, hidden], without the residual.
at::Tensor AttentionBlock(const DecoderLayer& layer,
                          Project project,
                          const RotaryAngles& angles,
                          Attention& attention,
                          const at::Tensor& x) {
  const ModelConfig& config = layer.config;
  const LayerWeights& weights = layer.weights;
  const int64_t rows = x.size(0);
  const at::Tensor n = RmsNorm(x, weights.input_norm, config.rms_norm_eps);
  at::Tensor q = project(Projection::kQ, n)
                     .view({rows, config.num_heads, config.head_dim});
  at::Tensor k = project(Projection::kK, n)
                     .view({rows, config.num_kv_heads, config.head_dim});
  const at::Tensor v = project(Projection::kV, n)
                           .view({rows, config.num_kv_heads, config.head_dim});
  if (config.qk_norm) {
    q = RmsNorm(q, weights.q_norm, config.rms_norm_eps);
    k = RmsNorm(k, weights.k_norm, config.rms_norm_eps);
  }
  return project(
      Projection::kO,
      attention.Attend(
          layer.index, ApplyRotary(q, angles), ApplyRotary(k, angles), v));
}

at::Tensor MlpBlock(const DecoderLayer& layer,
                    Project project,
                    const at::Tensor& x) {
  const at::Tensor m =
      RmsNorm(x, layer.weights.post_attention_norm, layer.config.rms_norm_eps);
  return project(
      Projection::kDown,
      at::silu(project(Projection::kGate, m)) * project(Projection::kUp, m));
}

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, true) + eps);
  return weight * (wide * scale).to(x.scalar_type());
}

at::Tensor ForwardLayer(const DecoderLayer& layer,
                        const RotaryAngles& angles,
                        Attention& attention,
                        const SumOverRanks& sum,
                        const at::Tensor& x) {
  const auto project = [&](Projection projection, const at::Tensor& input) {
    const auto p = static_cast<size_t>(projection);
    return LoraLinear(input,
                      layer.weights.weight[p],
                      layer.weights.bias[p],
                      layer.lora == nullptr ? nullptr : &(*layer.lora)[p],
                      layer.lora_scale);
  };
  at::Tensor attended = AttentionBlock(layer, project, angles, attention, x);
  if (sum) sum(attended);
  const at::Tensor middle = x + attended;
  at::Tensor mlp = MlpBlock(layer, project, middle);
  if (sum) sum(mlp);
  return middle + mlp;
}

}  // namespace dapd
