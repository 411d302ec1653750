#include "common/model/fast/pass_products.h"

#include <algorithm>
#include <vector>

#include "common/model/fast/device_products.h"
#include "common/model/fast/device_rows.h"

namespace dapd {
namespace {

// The number of rows of cuBLASLt's tiles for large products, or a multiple of
// it.
constexpr int64_t kRowStep = 256;

CudaProduct ProductOf(const at::Tensor& x,
                      const at::Tensor& w,
                      const at::Tensor& bias,
                      at::Tensor& y) {
  return {.rows = x.size(0),
          .inner = x.size(1),
          .cols = w.size(0),
          .x = x.const_data_ptr(),
          .x_stride = x.stride(0),
          .w = w.const_data_ptr(),
          .w_stride = w.stride(0),
          .y = y.mutable_data_ptr(),
          .y_stride = y.stride(0),
          .number = NumberOf(x),
          .bias = bias.defined() ? bias.const_data_ptr() : nullptr};
}

// Returns the products of a layer with `rows` rows. Their inputs and results
// lie in memory with the alignment of LibTorch's allocations.
std::vector<CudaProduct> ProductsOf(
    const std::array<PackedLinear, kNumLayerProducts>& linears,
    bool with_adapter,
    int64_t rows) {
  std::vector<CudaProduct> products;
  for (const PackedLinear& linear : linears) {
    const int64_t columns = with_adapter ? linear.lora : 0;
    const int64_t stride = linear.in + columns;
    CudaProduct product{
        .rows = rows,
        .inner = stride,
        .cols = linear.weight.size(0),
        .x_stride = stride,
        .w = linear.weight.const_data_ptr(),
        .w_stride = linear.weight.stride(0),
        .y_stride = linear.weight.size(0),
        .number = NumberOf(linear.weight),
        .bias = linear.bias.defined() ? linear.bias.const_data_ptr() : nullptr};
    products.push_back(product);
    if (columns == 0) continue;
    product.inner = linear.in;
    product.cols = columns;
    product.w = linear.lora_a.const_data_ptr();
    product.w_stride = linear.in;
    product.y =
        reinterpret_cast<void*>(linear.in * linear.weight.element_size());
    product.y_stride = stride;
    product.bias = nullptr;
    products.push_back(product);
  }
  return products;
}

}  // namespace

PassRows RowsOfPass(const std::array<PackedLinear, kNumLayerProducts>& linears,
                    bool with_adapter,
                    int64_t tokens,
                    int64_t whole) {
  const DeviceProducts* const device = DeviceProductsFor(linears[0].weight);
  const auto fit = [&](int64_t rows) {
    return std::ranges::all_of(ProductsOf(linears, with_adapter, rows),
                               [&](const CudaProduct& product) {
                                 return device->fits(&product, whole);
                               });
  };
  if (device == nullptr || !fit(whole)) return {.rows = whole};
  const int64_t rows =
      std::min((tokens + kRowStep - 1) / kRowStep * kRowStep, whole);
  return {.rows = fit(rows) ? rows : whole, .whole = whole};
}

void MultiplyAsWhole(const at::Tensor& x,
                     const at::Tensor& w,
                     const at::Tensor& bias,
                     int64_t whole,
                     at::Tensor& y) {
  const CudaProduct product = ProductOf(x, w, bias, y);
  char error[kCudaErrorBytes] = "";
  const int failed = DeviceProductsFor(x)->multiply(
      &product, whole, /*stream=*/nullptr, error);
  TORCH_CHECK(failed == 0, error);
}

}  // namespace dapd
