// Simulates the products of kernels/cuda/pass_product.h on the host, for
// tensors on the device of tests/fakes/torch_device. It is linked in place of
// model/fast/device_products.cc. The device has these products while a
// SimulatedProducts lives.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd::fake {

class SimulatedProducts {
 public:
  // Accepts numbers of rows that are multiples of `row_step`, and whole passes.
  explicit SimulatedProducts(int64_t row_step);
  ~SimulatedProducts();
  SimulatedProducts(const SimulatedProducts&) = delete;
  SimulatedProducts& operator=(const SimulatedProducts&) = delete;

  // Returns the rows of each product since the last call.
  std::vector<int64_t> TakeRows();
};

}  // namespace dapd::fake
