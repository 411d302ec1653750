#include "common/kernels/cuda/gemm.h"

#include <memory>

namespace dapd {
namespace {

// cuBLASLt's objects with their deleters.
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

// cuBLASLt is column-major: it takes a row-major [rows, cols] matrix as [cols,
// rows].
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

Preference MakePreference(bool has_workspace) {
  cublasLtMatmulPreference_t made = nullptr;
  cublasLtMatmulPreferenceCreate(&made);
  const auto set = [made](cublasLtMatmulPreferenceAttributes_t attribute,
                          const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(
        made, attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(has_workspace ? CudaGemm::kWorkspaceBytes : 0));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(has_workspace
                                ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                : CUBLASLT_REDUCTION_SCHEME_NONE));
  for (const auto alignment : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(alignment, kAlignment);
  }
  return {made, &cublasLtMatmulPreferenceDestroy};
}

// A product in cuBLASLt's terms. Transposed it reads y^T = op(w)^T x^T: w is
// the first operand, x the second.
struct Operands {
  explicit Operands(const CudaProduct& product)
      : type(TypeOf(product.number)),
        description(Describe(product)),
        w(product.w_is_kn
              ? RowMajor(type, product.inner, product.cols, product.w_stride)
              : RowMajor(type, product.cols, product.inner, product.w_stride)),
        x(RowMajor(type, product.rows, product.inner, product.x_stride)),
        y(RowMajor(product.float_result ? CUDA_R_32F : type,
                   product.rows,
                   product.cols,
                   product.y_stride)) {}

  static Description Describe(const CudaProduct& product) {
    cublasLtMatmulDesc_t made = nullptr;
    cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [made](cublasLtMatmulDescAttributes_t attribute,
                            const auto& value) {
      cublasLtMatmulDescSetAttribute(made, attribute, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA,
        product.w_is_kn ? CUBLAS_OP_N : CUBLAS_OP_T);
    if (product.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(product.number));
    }
    return {made, &cublasLtMatmulDescDestroy};
  }

  cudaDataType_t type;
  Description description;
  Layout w;
  Layout x;
  Layout y;
};

// Returns whether the algorithm may ignore the rest of the inner size behind
// the last whole step. cuBLASLt 12.8, 13.1 and 13.2 have done so on sm_90 and
// later, where the whole steps divide evenly into more parts than the rest has
// numbers (github.com/facebookexperimental/triton, pull request 2767). An
// adapter of rank 8 whose columns follow 4,096 others is such a rest.
bool MayDropRest(const cublasLtMatmulAlgo_t& algorithm, int64_t inner) {
  const int64_t rest = inner % kCublasInnerStep;
  int32_t parts = 1;
  size_t written = 0;
  const cublasStatus_t known =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm,
                                           CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                           &parts,
                                           sizeof(parts),
                                           &written);
  return rest > 0 && known == CUBLAS_STATUS_SUCCESS && parts > rest;
}

// Takes cuBLASLt's first choice for product.chosen_for rows, or for the
// product's own rows if that is 0.
cublasStatus_t Choose(cublasLtHandle_t handle,
                      CudaProduct product,
                      bool has_workspace,
                      cublasLtMatmulAlgo_t* algorithm) {
  if (product.chosen_for > 0) product.rows = product.chosen_for;
  const Operands of(product);
  const Preference preference = MakePreference(has_workspace);
  cublasLtMatmulHeuristicResult_t choice = {};
  int num_choices = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle,
                                     of.description.get(),
                                     of.w.get(),
                                     of.x.get(),
                                     of.y.get(),
                                     of.y.get(),
                                     preference.get(),
                                     1,
                                     &choice,
                                     &num_choices);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (num_choices == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_workspace && MayDropRest(choice.algo, product.inner)) {
    return Choose(handle, product, /*has_workspace=*/false, algorithm);
  }
  *algorithm = choice.algo;
  return CUBLAS_STATUS_SUCCESS;
}

bool IsAligned(const void* data, int64_t stride, CudaNumber number) {
  const int64_t size = number == CudaNumber::kFloat32 ? 4 : 2;
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0 &&
         stride * size % kAlignment == 0;
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

std::string CudaGemm::MakeHandle(const CudaProduct& product) {
  if (handle_ != nullptr) return "";
  const cublasStatus_t made = cublasLtCreate(&handle_);
  return made == CUBLAS_STATUS_SUCCESS
             ? std::string()
             : Failure("cublasLtCreate", made, product);
}

bool CudaGemm::Fits(const CudaProduct& product) {
  const CudaNumber number = product.number;
  if (!IsAligned(product.x, product.x_stride, number) ||
      !IsAligned(product.w, product.w_stride, number) ||
      !IsAligned(product.y, product.y_stride, number) ||
      !MakeHandle(product).empty()) {
    return false;
  }
  cublasLtMatmulAlgo_t algorithm;
  if (Choose(handle_, product, workspace_ != nullptr, &algorithm) !=
      CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  const Operands of(product);
  cublasLtMatmulHeuristicResult_t result = {};
  return cublasLtMatmulAlgoCheck(handle_,
                                 of.description.get(),
                                 of.w.get(),
                                 of.x.get(),
                                 of.y.get(),
                                 of.y.get(),
                                 &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <=
             static_cast<size_t>(workspace_ == nullptr ? 0 : kWorkspaceBytes);
}

std::string CudaGemm::Multiply(const CudaProduct& product,
                               cudaStream_t stream) {
  std::string problem = MakeHandle(product);
  if (!problem.empty()) return problem;
  cublasLtMatmulAlgo_t algorithm;
  const cublasStatus_t chosen =
      Choose(handle_, product, workspace_ != nullptr, &algorithm);
  if (chosen != CUBLAS_STATUS_SUCCESS) {
    return Failure("no algorithm for the product", chosen, product);
  }
  const Operands of(product);
  const cublasStatus_t run = cublasLtMatmul(
      handle_,
      of.description.get(),
      &product.alpha,
      product.w,
      of.w.get(),
      product.x,
      of.x.get(),
      &product.beta,
      product.c == nullptr ? product.y : product.c,
      of.y.get(),
      product.y,
      of.y.get(),
      &algorithm,
      workspace_,
      static_cast<size_t>(workspace_ == nullptr ? 0 : kWorkspaceBytes),
      stream);
  return run == CUBLAS_STATUS_SUCCESS ? std::string()
                                      : Failure("product", run, product);
}

}  // namespace dapd
