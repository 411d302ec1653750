// Environment variables that CUDA's libraries read when they are loaded.
#pragma once

#include <cstdint>

namespace dapd {

// Sets the variables whose defaults do not suit us, for this process and the
// processes that it starts. Variables that the user has set keep their values.
// Call it before any thread starts.
//
//   PYTORCH_ALLOC_CONF=expandable_segments:True   the allocator's blocks grow
//       where they are: packs and answers of ever other sizes leave no holes
//       that several processes on one GPU would each keep
//   NCCL_GRAPH_REGISTER=0                         ranks do not map each other's
//       buffers for what is captured in a graph. NCCL maps none that reaches
//       from one piece of a segment that grows into the next, which each rank
//       decides by itself, and those that decide differently wait for each
//       other without an end
//   CUBLAS_WORKSPACE_CONFIG=:4096:8               where `deterministic`: one
//       workspace for each stream, without which two runs of a product may
//       differ
//   NCCL_NVLS_ENABLE=0                            where `deterministic`: the
//       switches between GPUs add up nothing, in an order that may differ from
//       call to call
void SetCudaEnvironment(bool deterministic);

// Prepares a process whose kernels wait for the kernels of other processes on
// the same GPU, under the Multi-Process Service (docs/gpu.md). Call it like
// SetCudaEnvironment.
//
//   CUDA_MPS_CLIENT_PRIORITY=1                    below the others' 0
//   CUDA_MPS_ACTIVE_THREAD_PERCENTAGE             `percentage` of the
//       multiprocessors, unless that is 0
void GiveWayOnSharedGpu(int64_t percentage);

}  // namespace dapd
