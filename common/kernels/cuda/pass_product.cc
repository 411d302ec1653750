#include "common/kernels/cuda/pass_product.h"

#include <cstdio>
#include <string>

#include "common/kernels/cuda/gemm.h"

namespace dapd {
namespace {

// The thread's CudaGemm has no workspace, so it splits no sum.
CudaGemm& GemmOfThread() {
  thread_local CudaGemm gemm(/*workspace=*/nullptr);
  return gemm;
}

CudaProduct Chosen(CudaProduct product, int64_t whole_rows) {
  product.chosen_for = whole_rows;
  return product;
}

}  // namespace

extern "C" bool DapdCudaPassProductFits(const CudaProduct* product,
                                        int64_t whole_rows) {
  return GemmOfThread().Fits(Chosen(*product, whole_rows));
}

extern "C" int DapdCudaPassProduct(const CudaProduct* product,
                                   int64_t whole_rows,
                                   void* stream,
                                   char* error) {
  const std::string problem = GemmOfThread().Multiply(
      Chosen(*product, whole_rows), static_cast<cudaStream_t>(stream));
  if (problem.empty()) return 0;
  std::snprintf(error, kCudaErrorBytes, "%s", problem.c_str());
  return 1;
}

}  // namespace dapd
