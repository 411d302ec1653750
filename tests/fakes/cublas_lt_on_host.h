// Simulates cuBLASLt on the host: it records the calls of gemm.cc and chooses
// an algorithm for each product. Nothing is computed.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd::fake {

// Decides how the simulated cuBLASLt chooses, and what it accepts.
struct CublasLtTraits {
  int32_t parts = 1;     // number of parts into which it cuts a sum, if that is
                         // allowed
  int64_t row_step = 1;  // an algorithm accepts multiples of this, and the rows
                         // it was chosen for
};
void SetCublasLt(const CublasLtTraits& traits);

// Describes a launched product.
struct LibraryProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t cols = 0;
  int32_t parts = 0;       // parts of its algorithm
  int64_t chosen_for = 0;  // rows that its algorithm was chosen for
  bool operator==(const LibraryProduct&) const = default;
};
// Returns the products since the last call.
std::vector<LibraryProduct> TakeLibraryProducts();

}  // namespace dapd::fake
