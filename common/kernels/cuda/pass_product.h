// The products of a pass over packed weights (model/fast/packed_projections.h),
// whose rows have the bits of a whole pass's, however many of them are
// computed: cuBLASLt's algorithm is the one for the whole pass, and none that
// adds up parts of a sum. A row is then the same sum in the same order in any
// tile. For libdapd_cuda.so; none of it takes device memory.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/product.h"

namespace dapd {

extern "C" {
// Whether the algorithm for `whole_rows` rows takes product.rows of them, and
// the pointers and strides as they are. Always where these are whole_rows and
// multiples of 16 bytes.
bool DapdCudaPassProductFits(const CudaProduct* product, int64_t whole_rows);
// Launches a product that fits. 0, or another number with the reason in `error`
// (kCudaErrorBytes).
int DapdCudaPassProduct(const CudaProduct* product,
                        int64_t whole_rows,
                        void* stream,
                        char* error);
}

}  // namespace dapd
