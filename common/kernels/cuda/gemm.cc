#include "common/kernels/cuda/gemm.h"

#include <memory>

namespace dapd {
namespace {

// cuBLASLt's objects and what destroys them.
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t,
                                    decltype(&cublasLtMatmulDescDestroy)>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t,
                               decltype(&cublasLtMatrixLayoutDestroy)>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                                   decltype(&cublasLtMatmulPreferenceDestroy)>;

constexpr uint32_t kAlignment = 16;

cudaDataType_t TypeOf(CudaNumber number) {
  return number == CudaNumber::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

// cuBLASLt is column-major: a row-major [rows, cols] is its [cols, rows].
Layout RowMajor(cudaDataType_t type,
                int64_t rows,
                int64_t cols,
                int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatrixLayoutCreate(&layout,
                             type,
                             static_cast<uint64_t>(cols),
                             static_cast<uint64_t>(rows),
                             stride);
  return {layout, &cublasLtMatrixLayoutDestroy};
}

Preference MakePreference() {
  cublasLtMatmulPreference_t made = nullptr;
  cublasLtMatmulPreferenceCreate(&made);
  const auto set = [made](cublasLtMatmulPreferenceAttributes_t attribute,
                          const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(
        made, attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(CudaGemm::kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto alignment : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(alignment, kAlignment);
  }
  return {made, &cublasLtMatmulPreferenceDestroy};
}

std::string Failure(const char* what,
                    cublasStatus_t status,
                    const CudaProduct& product) {
  return std::string("[gemm] ") + what + " of [" +
         std::to_string(product.rows) + ", " + std::to_string(product.inner) +
         "] x [" + std::to_string(product.inner) + ", " +
         std::to_string(product.cols) + "]: " + cublasLtGetStatusString(status);
}

}  // namespace

CudaGemm::~CudaGemm() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

std::string CudaGemm::Multiply(const CudaProduct& product,
                               cudaStream_t stream) {
  if (handle_ == nullptr) {
    const cublasStatus_t made = cublasLtCreate(&handle_);
    if (made != CUBLAS_STATUS_SUCCESS) {
      return Failure("cublasLtCreate", made, product);
    }
  }
  // Transposed, y^T = op(w)^T x^T: w is the first operand, x the second.
  const cudaDataType_t type = TypeOf(product.number);
  const cudaDataType_t result_type = product.float_result ? CUDA_R_32F : type;
  cublasLtMatmulDesc_t made = nullptr;
  cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const Description description(made, &cublasLtMatmulDescDestroy);
  const cublasOperation_t w_operation =
      product.w_is_kn ? CUBLAS_OP_N : CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(
      made, CUBLASLT_MATMUL_DESC_TRANSA, &w_operation, sizeof(w_operation));
  const Layout w =
      product.w_is_kn
          ? RowMajor(type, product.inner, product.cols, product.w_stride)
          : RowMajor(type, product.cols, product.inner, product.w_stride);
  const Layout x =
      RowMajor(type, product.rows, product.inner, product.x_stride);
  const Layout y =
      RowMajor(result_type, product.rows, product.cols, product.y_stride);
  const Preference preference = MakePreference();
  cublasLtMatmulHeuristicResult_t choice = {};
  int num_choices = 0;
  const cublasStatus_t chosen = cublasLtMatmulAlgoGetHeuristic(handle_,
                                                               made,
                                                               w.get(),
                                                               x.get(),
                                                               y.get(),
                                                               y.get(),
                                                               preference.get(),
                                                               1,
                                                               &choice,
                                                               &num_choices);
  if (chosen != CUBLAS_STATUS_SUCCESS || num_choices == 0) {
    return Failure("no algorithm for the product", chosen, product);
  }
  const cublasStatus_t run =
      cublasLtMatmul(handle_,
                     made,
                     &product.alpha,
                     product.w,
                     w.get(),
                     product.x,
                     x.get(),
                     &product.beta,
                     product.c == nullptr ? product.y : product.c,
                     y.get(),
                     product.y,
                     y.get(),
                     &choice.algo,
                     workspace_,
                     static_cast<size_t>(kWorkspaceBytes),
                     stream);
  return run == CUBLAS_STATUS_SUCCESS ? std::string()
                                      : Failure("product", run, product);
}

}  // namespace dapd
