// A device with the products of kernels/cuda/pass_product.h, simulated by the
// host for tensors on the device of tests/fakes/torch_device: linked in place
// of model/fast/device_products.cc. It has them while a SimulatedProducts
// lives.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd::fake {

class SimulatedProducts {
 public:
  // Takes numbers of rows that are multiples of `row_step`, and whole passes.
  explicit SimulatedProducts(int64_t row_step);
  ~SimulatedProducts();
  SimulatedProducts(const SimulatedProducts&) = delete;
  SimulatedProducts& operator=(const SimulatedProducts&) = delete;

  // The rows of each product since the last call.
  std::vector<int64_t> TakeRows();
};

}  // namespace dapd::fake
