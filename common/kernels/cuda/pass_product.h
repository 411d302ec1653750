// The products of a pass over packed weights (model/fast/packed_projections.h).
// Their rows have the same bits as the rows of a whole pass, however many of
// them are computed: the algorithm is cuBLASLt's choice for the whole pass and
// never adds up parts of a sum, so a row is the same sum in the same order in
// any tile. This code belongs to libdapd_cuda.so and allocates no device
// memory.
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
