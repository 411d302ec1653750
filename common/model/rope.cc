#include "common/model/rope.h"

namespace dapd {

RotaryAngles MakeRotaryAngles(const ModelConfig& config,
                              const at::Tensor& positions,
                              at::ScalarType dtype) {
  const auto options =
      at::TensorOptions().dtype(at::kFloat).device(positions.device());
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, options) /
                               static_cast<double>(config.head_dim);
  const at::Tensor inverse_frequencies =
      1.0 / at::pow(at::scalar_tensor(config.rope_theta, options), exponents);
  const at::Tensor half =
      positions.to(at::kFloat).unsqueeze(1) * inverse_frequencies;  // [N, D/2]
  const at::Tensor angles = at::cat({half, half}, 1).unsqueeze(1);
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

at::Tensor ApplyRotary(const at::Tensor& heads, const RotaryAngles& angles) {
  const std::vector<at::Tensor> halves = heads.chunk(2, -1);
  const at::Tensor rotated = at::cat({-halves[1], halves[0]}, -1);
  return heads * angles.cos + rotated * angles.sin;
}

}  // namespace dapd
