// Matrix products by cuBLASLt on raw pointers: the products of a decode step
// that skinny_product.h does not take, the products of a pass (pass_product.h),
// and the merge of an adapter into weights (adapter_merge.h). This code belongs
// to libdapd_cuda.so.
//
// The algorithm is the library's first choice for the shape and not the result
// of a timing, so it is the same in every process on the same kind of GPU. Sums
// are float32, also the partial sums of split products, and complete: a choice
// that may ignore the end of a sum is replaced by an algorithm that splits
// nothing. cuBLASLt may choose another algorithm for another number of rows. A
// caller that wants bits that do not depend on the batch keeps the number of
// rows fixed, or sets `chosen_for`.
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

  // `workspace` is kWorkspaceBytes of device memory, used while a product runs.
  // With null no product is split along its sum.
  explicit CudaGemm(void* workspace) : workspace_(workspace) {}
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // Returns an empty string, or why the product could not be launched.
  std::string Multiply(const CudaProduct& product, cudaStream_t stream);

  // Returns whether an algorithm for product.chosen_for rows takes product.rows
  // rows and the product's pointers and strides.
  bool Fits(const CudaProduct& product);

 private:
  // Returns an empty string, or why there is no handle.
  std::string MakeHandle(const CudaProduct& product);

  void* const workspace_;
  cublasLtHandle_t handle_ = nullptr;  // made by the first product
};

}  // namespace dapd
