// Matrix products by cuBLASLt on raw pointers: those of a decode step, which
// have few rows, and an adapter's update merged into weights in one pass over
// them. For libdapd_cuda.so.
//
// The algorithm is the library's first choice for the shape, not the result of
// a timing, so that it is the same in every process on the same kind of GPU;
// sums are float32, also those of split products. cuBLASLt may choose another
// algorithm for another number of rows: who wants bits that do not depend on
// the batch keeps the number of rows fixed.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// y = alpha x op(w) + beta c. All matrices are row-major with `*_stride`
// elements from row to row, a multiple of 16 bytes.
struct CudaProduct {
  int64_t rows = 0;         // M
  int64_t inner = 0;        // K
  int64_t cols = 0;         // N
  const void* x = nullptr;  // [M, K] in `number`
  int64_t x_stride = 0;
  const void* w = nullptr;  // [N, K] in `number`, or [K, N] if `w_is_kn`
  int64_t w_stride = 0;
  bool w_is_kn = false;
  const void* c = nullptr;  // [M, N] as y, read where beta is not 0
  void* y = nullptr;        // [M, N] in `number`, or float32 if `float_result`
  int64_t y_stride = 0;     // of c, too
  CudaNumber number = CudaNumber::kFloat32;
  bool float_result = false;
  float alpha = 1.0F;
  float beta = 0.0F;
};

// Not thread-safe.
class CudaGemm {
 public:
  static constexpr int64_t kWorkspaceBytes = kCudaProductWorkspace;

  // `workspace`: kWorkspaceBytes of device memory, used while a product runs.
  explicit CudaGemm(void* workspace) : workspace_(workspace) {}
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // Empty, or why it could not be launched.
  std::string Multiply(const CudaProduct& product, cudaStream_t stream);

 private:
  void* const workspace_;
  cublasLtHandle_t handle_ = nullptr;  // made by the first product
};

}  // namespace dapd
