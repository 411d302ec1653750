#include "common/kernels/cuda/adapter_merge.h"

#include <cstdio>
#include <string>

#include "common/kernels/cuda/gemm.h"

namespace dapd {

extern "C" int64_t DapdCudaMergeWorkspace() {
  return CudaGemm::kWorkspaceBytes;
}

extern "C" int DapdCudaMergeAdapter(const AdapterMerge* merges,
                                    int64_t count,
                                    CudaNumber number,
                                    void* workspace,
                                    void* stream,
                                    char* error) {
  CudaGemm gemm(workspace);
  for (int64_t i = 0; i < count; ++i) {
    const AdapterMerge& merge = merges[i];
    const std::string problem =
        gemm.Multiply({.rows = merge.out,
                       .inner = merge.rank,
                       .cols = merge.in,
                       .x = merge.b,
                       .x_stride = merge.rank,
                       .w = merge.a,
                       .w_stride = merge.in,
                       .w_is_kn = true,
                       .c = merge.base,
                       .y = merge.merged,
                       .y_stride = merge.in,
                       .number = number,
                       .alpha = merge.scale,
                       .beta = 1.0F},
                      static_cast<cudaStream_t>(stream));
    if (!problem.empty()) {
      std::snprintf(error, kCudaErrorBytes, "%s", problem.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace dapd
