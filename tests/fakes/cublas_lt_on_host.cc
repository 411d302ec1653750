#include "tests/fakes/cublas_lt_on_host.h"

#include <cublasLt.h>

#include <cstring>
#include <utility>

namespace dapd::fake {
namespace {

CublasLtTraits cublas_traits;
std::vector<LibraryProduct> library_products;

// The simulation keeps its values in these words of the opaque objects.
enum LayoutWord { kRowsWord, kColumnsWord };
enum PreferenceWord { kWorkspaceWord, kReductionsWord };
enum AlgorithmWord { kPartsWord, kChosenForWord };

// The matrices are column-major: the second operand is the transposed x,
// [inner, rows].
LibraryProduct ProductOf(const cublasLtMatrixLayoutOpaque_t& x,
                         const cublasLtMatrixLayoutOpaque_t& y,
                         const cublasLtMatmulAlgo_t& algorithm) {
  return {.rows = static_cast<int64_t>(x.data[kColumnsWord]),
          .inner = static_cast<int64_t>(x.data[kRowsWord]),
          .cols = static_cast<int64_t>(y.data[kRowsWord]),
          .parts = static_cast<int32_t>(algorithm.data[kPartsWord]),
          .chosen_for = static_cast<int64_t>(algorithm.data[kChosenForWord])};
}

// Returns the bytes of the sums of the algorithm's parts.
size_t WorkspaceOf(const cublasLtMatmulAlgo_t& algorithm) {
  return algorithm.data[kPartsWord] > 1 ? size_t{1} << 20 : 0;
}

bool Takes(const LibraryProduct& product) {
  return product.rows == product.chosen_for ||
         product.rows % cublas_traits.row_step == 0;
}

}  // namespace

void SetCublasLt(const CublasLtTraits& traits) { cublas_traits = traits; }

std::vector<LibraryProduct> TakeLibraryProducts() {
  return std::exchange(library_products, {});
}

}  // namespace dapd::fake

using dapd::fake::LibraryProduct;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int made;
  *handle = reinterpret_cast<cublasLtHandle_t>(&made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "simulated"; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType,
                                          uint64_t rows,
                                          uint64_t cols,
                                          int64_t) {
  *layout = new cublasLtMatrixLayoutOpaque_t{.data = {rows, cols}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t,
                                        cudaDataType_t) {
  *description = new cublasLtMatmulDescOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t,
                                              cublasLtMatmulDescAttributes_t,
                                              const void*,
                                              size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute,
    const void* value,
    size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    std::memcpy(&preference->data[dapd::fake::kWorkspaceWord], value, bytes);
  }
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    std::memcpy(&preference->data[dapd::fake::kReductionsWord], value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t,
    cublasLtMatmulDesc_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t x,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t preference,
    int,
    cublasLtMatmulHeuristicResult_t* results,
    int* num_results) {
  const bool may_split = preference->data[dapd::fake::kWorkspaceWord] > 0 &&
                         preference->data[dapd::fake::kReductionsWord] > 0;
  results[0] = {};
  results[0].algo.data[dapd::fake::kPartsWord] =
      may_split ? static_cast<uint64_t>(dapd::fake::cublas_traits.parts) : 1;
  results[0].algo.data[dapd::fake::kChosenForWord] =
      x->data[dapd::fake::kColumnsWord];
  results[0].workspaceSize = dapd::fake::WorkspaceOf(results[0].algo);
  *num_results = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algorithm,
    cublasLtMatmulAlgoConfigAttributes_t attribute,
    void* value,
    size_t bytes,
    size_t* written) {
  if (attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM || bytes != 4) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(value, &algorithm->data[dapd::fake::kPartsWord], bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t,
    cublasLtMatmulDesc_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t x,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t y,
    const cublasLtMatmulAlgo_t* algorithm,
    cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = dapd::fake::WorkspaceOf(*algorithm);
  return dapd::fake::Takes(dapd::fake::ProductOf(*x, *y, *algorithm))
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t,
                              cublasLtMatmulDesc_t,
                              const void*,
                              const void*,
                              cublasLtMatrixLayout_t,
                              const void*,
                              cublasLtMatrixLayout_t x,
                              const void*,
                              const void*,
                              cublasLtMatrixLayout_t,
                              void*,
                              cublasLtMatrixLayout_t y,
                              const cublasLtMatmulAlgo_t* algorithm,
                              void*,
                              size_t workspace_bytes,
                              cudaStream_t) {
  const LibraryProduct product = dapd::fake::ProductOf(*x, *y, *algorithm);
  if (!dapd::fake::Takes(product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (dapd::fake::WorkspaceOf(*algorithm) > workspace_bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  dapd::fake::library_products.push_back(product);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
