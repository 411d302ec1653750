#include "common/model/rope.h"

#include <numbers>
#include <variant>

namespace dapd {
namespace {

// Return the frequencies for the powers theta^(2i / head_dim), in float32 and
// in transformers' order of operations.
at::Tensor Stretched(const at::Tensor& powers, const LinearRope& linear) {
  return (1.0 / powers) / linear.factor;
}

at::Tensor Stretched(const at::Tensor& powers, const Llama3Rope& llama3) {
  const at::Tensor frequencies = 1.0 / powers;
  const at::Tensor wavelengths = 2 * std::numbers::pi / frequencies;
  const at::Tensor divided = frequencies / llama3.factor;
  const at::Tensor share =
      (llama3.original_positions / wavelengths - llama3.low_freq_factor) /
      (llama3.high_freq_factor - llama3.low_freq_factor);
  const at::Tensor mixed =
      (1 - share) * frequencies / llama3.factor + share * frequencies;
  const double longest = llama3.original_positions / llama3.low_freq_factor;
  const double shortest = llama3.original_positions / llama3.high_freq_factor;
  return at::where(wavelengths > longest,
                   divided,
                   at::where(wavelengths < shortest, frequencies, mixed));
}

at::Tensor Stretched(const at::Tensor& powers, const YarnRope& yarn) {
  const at::Tensor numbers = at::arange(powers.numel(), powers.options());
  const at::Tensor kept = 1 - at::clamp((numbers - yarn.ramp_begin) /
                                            (yarn.ramp_end - yarn.ramp_begin),
                                        0,
                                        1);
  return 1.0 / (yarn.factor * powers) * (1 - kept) + 1.0 / powers * kept;
}

double AttentionFactor(const ModelConfig& config) {
  if (!config.rope_scaling.has_value()) return 1.0;
  const auto* yarn = std::get_if<YarnRope>(&*config.rope_scaling);
  return yarn == nullptr ? 1.0 : yarn->attention_factor;
}

}  // namespace

RotaryAngles MakeRotaryAngles(const ModelConfig& config,
                              const at::Tensor& positions,
                              at::ScalarType dtype) {
  const auto options =
      at::TensorOptions().dtype(at::kFloat).device(positions.device());
  const int64_t turned = config.RotatedDim();
  const at::Tensor exponents =
      at::arange(0, turned, 2, options) / static_cast<double>(turned);
  const at::Tensor powers =
      at::pow(at::scalar_tensor(config.rope_theta, options), exponents);
  const at::Tensor frequencies =
      config.rope_scaling.has_value()
          ? std::visit([&](const auto& how) { return Stretched(powers, how); },
                       *config.rope_scaling)
          : 1.0 / powers;
  const at::Tensor half =
      positions.to(at::kFloat).unsqueeze(1) * frequencies;  // [N, D/2]
  const at::Tensor angles = at::cat({half, half}, 1).unsqueeze(1);
  at::Tensor cosines = angles.cos();
  at::Tensor sines = angles.sin();
  if (const double factor = AttentionFactor(config); factor != 1.0) {
    cosines.mul_(factor);
    sines.mul_(factor);
  }
  return {cosines.to(dtype), sines.to(dtype)};
}

at::Tensor ApplyRotary(const at::Tensor& heads, const RotaryAngles& angles) {
  const int64_t turned = angles.cos.size(-1);
  if (const int64_t rest = heads.size(-1) - turned; rest > 0) {
    return at::cat({ApplyRotary(heads.narrow(-1, 0, turned), angles),
                    heads.narrow(-1, turned, rest)},
                   -1);
  }
  const std::vector<at::Tensor> halves = heads.chunk(2, -1);
  const at::Tensor rotated = at::cat({-halves[1], halves[0]}, -1);
  return heads * angles.cos + rotated * angles.sin;
}

}  // namespace dapd
