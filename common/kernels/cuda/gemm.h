// Matrix products by cuBLASLt on raw pointers: those of a decode step that
// skinny_product.h does not take, those of a pass (pass_product.h), and an
// adapter's update merged into weights in one pass over them. For
// libdapd_cuda.so.
//
// The algorithm is the library's first choice for the shape, not the result of
// a timing, so that it is the same in every process on the same kind of GPU;
// sums are float32, also those of split products, and whole: a choice that may
// leave out a sum's end is replaced by one that splits nothing. cuBLASLt may
// choose another algorithm for another number of rows: who wants bits that do
// not depend on the batch keeps the number of rows fixed, or the one that it is
// chosen for.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "common/kernels/cuda/product.h"

namespace dapd {

// Not thread-safe.
class CudaGemm {
 public:
  static constexpr int64_t kWorkspaceBytes = kCudaProductWorkspace;

  // `workspace`: kWorkspaceBytes of device memory, used while a product runs.
  // Null: none, and no product is split along its sum.
  explicit CudaGemm(void* workspace) : workspace_(workspace) {}
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // Empty, or why it could not be launched.
  std::string Multiply(const CudaProduct& product, cudaStream_t stream);

  // Whether there is an algorithm for product.chosen_for rows that takes
  // product.rows of them, and pointers and strides as they are.
  bool Fits(const CudaProduct& product);

 private:
  // Empty, or why there is no handle.
  std::string MakeHandle(const CudaProduct& product);

  void* const workspace_;
  cublasLtHandle_t handle_ = nullptr;  // made by the first product
};

}  // namespace dapd
