// The products of a pass that may have more rows than its tokens take: as many
// are computed as there are tokens, and each has the bits that it has in a
// whole pass. So a chunk's numbers do not depend on what passes with it
// (chunk_forward.h), and nothing is computed for rows that nobody uses.
//
// Where the device has no such products (device_products.h), every pass is a
// whole one.
#pragma once

#include <array>
#include <cstdint>

#include "common/model/fast/packed_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct PassRows {
  int64_t rows = 0;  // of every product, at least the pass's tokens
  // The rows of a whole pass, for MultiplyAsWhole; 0: LibTorch is to multiply.
  // Depends on the weights and the device alone.
  int64_t whole = 0;
};

// Of a pass of `tokens` tokens through layers like `linears`, with their
// adapter's columns or without; a whole pass has `whole` rows.
PassRows RowsOfPass(const std::array<PackedLinear, 4>& linears,
                    bool with_adapter,
                    int64_t tokens,
                    int64_t whole);

// y = x w^T + bias as in a pass of `whole` rows. x [N, in], w [out, in] and y
// [N, out] may be parts of wider rows; bias [out] or undefined. Throws
// c10::Error if it cannot be launched.
void MultiplyAsWhole(const at::Tensor& x,
                     const at::Tensor& w,
                     const at::Tensor& bias,
                     int64_t whole,
                     at::Tensor& y);

}  // namespace dapd
