// Products of a pass that may have more rows than its tokens take. They compute
// only as many rows as there are tokens, and each row has the bits that it has
// in a whole pass. So a chunk's numbers do not depend on the other chunks of
// the pass (chunk_forward.h), and rows that nobody uses are not computed.
//
// On a device without such products (device_products.h) every pass is a whole
// pass.
#pragma once

#include <array>
#include <cstdint>

#include "common/model/fast/packed_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct PassRows {
  int64_t rows = 0;  // rows of every product, at least the pass's tokens
  // The rows of a whole pass, for MultiplyAsWhole; 0: LibTorch multiplies.
  // Depends only on the weights and the device.
  int64_t whole = 0;
};

// Returns the rows for a pass of `tokens` tokens through layers like `linears`,
// with or without the adapter's columns; a whole pass has `whole` rows.
PassRows RowsOfPass(const std::array<PackedLinear, kNumLayerProducts>& linears,
                    bool with_adapter,
                    int64_t tokens,
                    int64_t whole);

// Computes y = x w^T + bias with the bits of a pass of `whole` rows. x [N, in],
// w [out, in] and y [N, out] may be parts of wider rows; bias [out] or
// undefined. Throws c10::Error if the launch fails.
void MultiplyAsWhole(const at::Tensor& x,
                     const at::Tensor& w,
                     const at::Tensor& bias,
                     int64_t whole,
                     at::Tensor& y);

}  // namespace dapd
