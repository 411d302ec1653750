#include "common/base/cuda_environment.h"

#include <cstdlib>
#include <string>

namespace dapd {

void SetCudaEnvironment(bool deterministic) {
  // The older name of this variable, which LibTorch reads first.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr) {
    ::setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  }
  ::setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  if (deterministic) {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    ::setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  }
}

void GiveWayOnSharedGpu(int64_t percentage) {
  ::setenv("CUDA_MPS_CLIENT_PRIORITY", "1", /*overwrite=*/0);
  if (percentage > 0) {
    ::setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
             std::to_string(percentage).c_str(),
             /*overwrite=*/0);
  }
}

}  // namespace dapd
