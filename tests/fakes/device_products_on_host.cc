#include "tests/fakes/device_products_on_host.h"

#include <utility>

#include "common/model/fast/device_products.h"
#include "common/tensor/aten.h"

namespace dapd {
namespace {

int64_t step = 0;  // 0: the device has no such products
std::vector<int64_t> rows_of_products;

at::Tensor Matrix(const void* data,
                  int64_t rows,
                  int64_t cols,
                  int64_t stride,
                  CudaNumber number) {
  return at::from_blob(const_cast<void*>(data),
                       {rows, cols},
                       {stride, 1},
                       at::TensorOptions().dtype(number == CudaNumber::kFloat32
                                                     ? at::kFloat
                                                     : at::kBFloat16));
}

bool IsAligned(const void* data, int64_t stride, CudaNumber number) {
  const int64_t size = number == CudaNumber::kFloat32 ? 4 : 2;
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * size % 16 == 0;
}

bool Fits(const CudaProduct* product, int64_t whole_rows) {
  const CudaProduct& p = *product;
  return IsAligned(p.x, p.x_stride, p.number) &&
         IsAligned(p.w, p.w_stride, p.number) &&
         IsAligned(p.y, p.y_stride, p.number) &&
         (p.rows == whole_rows || p.rows % step == 0);
}

// Multiplies row by row: LibTorch's bits depend on the number of rows.
int Multiply(const CudaProduct* product,
             int64_t whole_rows,
             void* /*stream*/,
             char* /*error*/) {
  const CudaProduct& p = *product;
  TORCH_CHECK(Fits(product, whole_rows), "the product does not fit");
  const at::NoGradGuard no_grad;
  const at::Tensor w =
      Matrix(p.w, p.cols, p.inner, p.w_stride, p.number).to(at::kDouble);
  for (int64_t row = 0; row < p.rows; ++row) {
    const int64_t size = p.number == CudaNumber::kFloat32 ? 4 : 2;
    const at::Tensor x =
        Matrix(static_cast<const char*>(p.x) + row * p.x_stride * size,
               1,
               p.inner,
               p.x_stride,
               p.number);
    at::Tensor y = at::mm(x.to(at::kDouble), w.t());
    if (p.bias != nullptr) {
      y += Matrix(p.bias, 1, p.cols, p.cols, p.number).to(at::kDouble);
    }
    Matrix(static_cast<const char*>(p.y) + row * p.y_stride * size,
           1,
           p.cols,
           p.y_stride,
           p.number)
        .copy_(y);
  }
  rows_of_products.push_back(p.rows);
  return 0;
}

const DeviceProducts kProducts = {.fits = &Fits, .multiply = &Multiply};

}  // namespace

const DeviceProducts* DeviceProductsFor(const at::Tensor& x) {
  return x.is_cuda() && step > 0 ? &kProducts : nullptr;
}

namespace fake {

SimulatedProducts::SimulatedProducts(int64_t row_step) {
  step = row_step;
  rows_of_products.clear();
}

SimulatedProducts::~SimulatedProducts() { step = 0; }

std::vector<int64_t> SimulatedProducts::TakeRows() {
  return std::exchange(rows_of_products, {});
}

}  // namespace fake
}  // namespace dapd
