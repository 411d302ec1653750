// Small kernels with one mistake each, and beside each mistake what would be
// right, for fake_device_test.cc.
#include <cuda_runtime.h>

#include "tests/fakes/cuda/faulty_kernels.h"

namespace dapd::fake {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFU;

struct alignas(16) FourNumbers {
  float value[4];
};

__global__ void Run(FaultyArgs args) {
  __shared__ float values[kFaultyThreads];
  __shared__ int count;
  const int i = static_cast<int>(threadIdx.x);
  float* out = args.out;
  switch (args.fault) {
    case Fault::kNone: {
      values[i] = static_cast<float>(i);
      if (i == 0) count = 0;
      __syncthreads();
      atomicAdd(&count, 1);
      const int even = __syncthreads_count(i % 2 == 0);
      const unsigned odd = __ballot_sync(kAll, i % 2);
      const float next = __shfl_down_sync(kAll, values[i], 1);
      const float first = __shfl_sync(kAll, values[i], 0, 8);
      const float before = __shfl_up_sync(kAll, values[i], 1, 16);
      out[i] = values[(i + 1) % kFaultyThreads] + next + first + before +
               static_cast<float>(count + even) + static_cast<float>(odd & 3U);
      return;
    }
    case Fault::kLastBlock:
    case Fault::kLastBlockWithoutAFence: {
      const bool fences = args.fault == Fault::kLastBlock;
      const int blocks = static_cast<int>(gridDim.x);
      if (i == 0) args.in[blockIdx.x] = 2.0F;
      if (fences) __threadfence();
      __syncthreads();
      if (i == 0) count = atomicInc(args.counter, blocks - 1) + 1 == gridDim.x;
      __syncthreads();
      if (count == 0) return;
      if (fences) __threadfence();
      out[i] = i < blocks ? args.in[i] : 0.0F;
      return;
    }
    case Fault::kOrderByWarp:
      values[i] = 1.0F;
      __syncwarp();
      out[i] = values[i ^ 1];
      return;
    case Fault::kOrderByWarpAcross:
      values[i] = 1.0F;
      __syncwarp();
      out[i] = values[i ^ 32];
      return;
    case Fault::kBehindTheEnd:
      out[i + 1] = 0.0F;
      return;
    case Fault::kBeforeTheBegin:
      out[i] = args.in[i - 1];
      return;
    case Fault::kUnwrittenShared:
      if (i != 5) values[i] = 1.0F;
      __syncthreads();
      out[i] = values[i];
      return;
    case Fault::kUnwrittenGlobal:
      out[i] = args.unwritten[i];
      return;
    case Fault::kHostMemory:
      out[i] = *args.host;
      return;
    case Fault::kMisaligned:
      out[i] = reinterpret_cast<const FourNumbers*>(args.in + 1)->value[0];
      return;
    case Fault::kIndexOutsideOfAnArray:
      values[i + (args.in[0] > 0.0F ? kFaultyThreads : 0)] = 1.0F;
      return;
    case Fault::kTwoWriters:
      values[0] = static_cast<float>(i);
      return;
    case Fault::kTwoBlocks:
      args.in[i] += 1.0F;
      return;
    case Fault::kAtomicAndPlain:
      if (i == 0) count = 0;
      __syncthreads();
      if (i == 40) count = 7;
      atomicAdd(&count, 1);
      return;
    case Fault::kEndsBeforeTheBarrier:
      if (i == 3) return;
      __syncthreads();
      return;
    case Fault::kTwoBarriers:
      if (i < 32) {
        __syncthreads();
      } else {
        __syncthreads();
      }
      return;
    case Fault::kNotInItsMask:
      out[i] = __shfl_xor_sync(0xFFFFU, args.in[i], 1);
      return;
    case Fault::kLaneThatDoesNotCome:
      if (i % kFaultyThreads < 8) out[i] = __shfl_xor_sync(kAll, args.in[i], 1);
      return;
    case Fault::kShuffleWithoutItsSource:
      if (i < 8) out[i] = __shfl_xor_sync(0xFFU, args.in[i], 8);
      return;
    case Fault::kOverflow:
      out[i] = static_cast<float>(static_cast<int>(args.in[0]) * 2'000'000'000);
      return;
    case Fault::kTooMuchSharedMemory: {
      __shared__ double large[6145];
      large[i] = 0.0;
      return;
    }
  }
}

}  // namespace

int RunFaulty(const FaultyArgs& args, unsigned blocks) {
  Run<<<blocks, kFaultyThreads, 0, nullptr>>>(args);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace dapd::fake
