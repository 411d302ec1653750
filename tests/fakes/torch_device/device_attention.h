// Attention of the simulated device, from its definition in float32.
#pragma once

#include <utility>
#include <vector>

#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

// The queries and the keys of each sequence; the queries are the last of the
// keys.
using AttendedRanges = std::vector<std::pair<RowRange, RowRange>>;

// All tensors are on the host: q [N, H, D], k and v [M, K, D]. Fills out [N, H,
// D] and logsumexp [H, N].
void RunAttention(const at::Tensor& q,
                  const at::Tensor& k,
                  const at::Tensor& v,
                  const AttendedRanges& sequences,
                  at::Tensor out,
                  at::Tensor logsumexp);

AttentionGradients RunAttentionBackward(const at::Tensor& grad,
                                        const at::Tensor& q,
                                        const at::Tensor& k,
                                        const at::Tensor& v,
                                        const at::Tensor& logsumexp,
                                        const AttendedRanges& sequences);

}  // namespace dapd
