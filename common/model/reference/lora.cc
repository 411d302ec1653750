#include "common/model/reference/lora.h"

#include <optional>

namespace dapd {

at::Tensor LoraLinear(const at::Tensor& x,
                      const at::Tensor& weight,
                      const at::Tensor& bias,
                      const LoraPair* pair,
                      double scale) {
  const at::Tensor base = at::linear(
      x,
      weight,
      bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
  if (pair == nullptr || !pair->a.defined()) return base;
  const at::Tensor update =
      at::linear(at::linear(x.to(pair->a.scalar_type()), pair->a), pair->b);
  return (base + update * scale).to(x.scalar_type());
}

}  // namespace dapd
