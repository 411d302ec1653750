// Launches the kernels of training_rows.h in turn, for numbers of either type.
#pragma once

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/training_rows.h"

namespace dapd {

inline constexpr int kRowThreads = 256;
inline constexpr int kRowVector = 8;  // numbers that a thread loads at a time

// Launches the kernel for `number` in `blocks` blocks of `threads` threads if
// there are rows. Returns a cudaError_t.
template <auto kFloatKernel, auto kBFloat16Kernel, typename Args>
int LaunchRows(const Args& args,
               int64_t blocks,
               CudaNumber number,
               void* stream,
               int threads = kRowThreads) {
  if (args.rows == 0) return 0;
  const auto launch = number == CudaNumber::kFloat32
                          ? LaunchOn<kFloatKernel, Args>
                          : LaunchOn<kBFloat16Kernel, Args>;
  return launch(stream,
                Begin::kInTurn,
                dim3(static_cast<unsigned>(blocks)),
                threads,
                args,
                /*shared_bytes=*/0,
                /*cluster=*/1);
}

}  // namespace dapd
