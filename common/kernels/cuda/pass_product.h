// The products of a pass over packed weights (model/fast/packed_layer.h), whose
// rows have the bits of a whole pass's, however many of them are computed:
// cuBLASLt's algorithm is the one for the whole pass, and none that adds up
// parts of a sum. A row is then the same sum in the same order in any tile. For
// libdapd_cuda.so; none of it takes device memory.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/product.h"

namespace dapd {

extern "C" {
// Returns whether the algorithm for `whole_rows` rows takes product.rows rows
// and the product's pointers and strides. This holds if product.rows is
// whole_rows and the pointers and strides are multiples of 16 bytes.
bool DapdCudaPassProductFits(const CudaProduct* product, int64_t whole_rows);
// Launches a product that fits. Returns 0, or another number with the reason in
// `error` (kCudaErrorBytes).
int DapdCudaPassProduct(const CudaProduct* product,
                        int64_t whole_rows,
                        void* stream,
                        char* error);
}

}  // namespace dapd
