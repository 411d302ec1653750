// A cuBLASLt that the host simulates: what gemm.cc says to it, and which
// algorithm it has for what. Nothing is computed.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd::fake {

// How it chooses and what it takes.
struct CublasLtTraits {
  int32_t parts = 1;     // that it cuts a sum into, where it may
  int64_t row_step = 1;  // an algorithm takes multiples of it, and its own rows
};
void SetCublasLt(const CublasLtTraits& traits);

// A product that was launched.
struct LibraryProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t cols = 0;
  int32_t parts = 0;       // of its algorithm
  int64_t chosen_for = 0;  // rows
  bool operator==(const LibraryProduct&) const = default;
};
// Those since the last call.
std::vector<LibraryProduct> TakeLibraryProducts();

}  // namespace dapd::fake
