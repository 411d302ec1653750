#include "common/model/rope.h"

#include <numbers>

namespace dapd {
namespace {

// In float32 and in transformers' order of operations.
at::Tensor Stretch(const at::Tensor& frequencies, const RopeScaling& scaling) {
  const at::Tensor wavelengths = 2 * std::numbers::pi / frequencies;
  const at::Tensor divided = frequencies / scaling.factor;
  const at::Tensor share =
      (scaling.original_positions / wavelengths - scaling.low_freq_factor) /
      (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor mixed =
      (1 - share) * frequencies / scaling.factor + share * frequencies;
  const double longest = scaling.original_positions / scaling.low_freq_factor;
  const double shortest = scaling.original_positions / scaling.high_freq_factor;
  return at::where(wavelengths > longest,
                   divided,
                   at::where(wavelengths < shortest, frequencies, mixed));
}

}  // namespace

RotaryAngles MakeRotaryAngles(const ModelConfig& config,
                              const at::Tensor& positions,
                              at::ScalarType dtype) {
  const auto options =
      at::TensorOptions().dtype(at::kFloat).device(positions.device());
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, options) /
                               static_cast<double>(config.head_dim);
  at::Tensor frequencies =
      1.0 / at::pow(at::scalar_tensor(config.rope_theta, options), exponents);
  if (config.rope_scaling.has_value()) {
    frequencies = Stretch(frequencies, *config.rope_scaling);
  }
  const at::Tensor half =
      positions.to(at::kFloat).unsqueeze(1) * frequencies;  // [N, D/2]
  const at::Tensor angles = at::cat({half, half}, 1).unsqueeze(1);
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

at::Tensor ApplyRotary(const at::Tensor& heads, const RotaryAngles& angles) {
  const std::vector<at::Tensor> halves = heads.chunk(2, -1);
  const at::Tensor rotated = at::cat({-halves[1], halves[0]}, -1);
  return heads * angles.cos + rotated * angles.sin;
}

}  // namespace dapd
