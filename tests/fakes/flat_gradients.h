// Joins an adapter's gradients into one vector, for comparisons.
#pragma once

#include <vector>

#include "common/model/weights/adapter.h"

namespace dapd {

// Returns [sum of all sizes] on the CPU: layer by layer, A before B.
inline at::Tensor FlatGradients(const std::vector<LoraLayer>& gradients) {
  std::vector<at::Tensor> parts;
  for (const LoraLayer& layer : gradients) {
    for (const LoraPair& pair : layer) {
      parts.push_back(pair.a.cpu().flatten());
      parts.push_back(pair.b.cpu().flatten());
    }
  }
  return at::cat(parts);
}

}  // namespace dapd
