// Small kernels with one mistake each, and beside each mistake the correct
// code, for fake_device_test.cc.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "common/kernels/cuda/cluster_messages.cuh"
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
    case Fault::kSecondCountWithoutAFence: {
      const int blocks = static_cast<int>(gridDim.x);
      for (int turn = 0; turn < 2; ++turn) {
        if (i == 0) args.in[blockIdx.x] = 2.0F;
        if (turn == 0) __threadfence();
        __syncthreads();
        if (i == 0) {
          count = atomicInc(args.counter, 2 * blocks - 1) + 1 == 2 * gridDim.x;
        }
        __syncthreads();
      }
      if (count == 0) return;
      __threadfence();
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
    default:
      return;
  }
}

__device__ void ClusterSync() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}

__global__ void RunInClusters(FaultyArgs args) {
  __shared__ float value;
  const unsigned rank = __clusterRelativeBlockRank();
  const unsigned size = __clusterSizeInBlocks();
  const int i = static_cast<int>(threadIdx.x);
  float* others =
      static_cast<float*>(__cluster_map_shared_rank(&value, (rank + 1) % size));
  switch (args.fault) {
    case Fault::kClusterNone:
    case Fault::kClusterReadAndWritten:
      ClusterSync();
      if (i == 0) *others = static_cast<float>(rank);
      ClusterSync();
      if (rank == 0) args.out[i] = value;
      if (args.fault == Fault::kClusterReadAndWritten && i == 0) *others = 0.0F;
      return;
    case Fault::kClusterWithoutBarrier:
      if (i == 0) *others = static_cast<float>(rank);
      __syncthreads();
      if (rank == 0) args.out[i] = value;
      return;
    case Fault::kClusterBlockThatDoesNotCome:
      if (rank == 1) return;
      ClusterSync();
      return;
    case Fault::kClusterRankOutside:
      args.out[i] = *static_cast<float*>(__cluster_map_shared_rank(&value, 9));
      return;
    default:
      return;
  }
}

// Each block sends a number to the next block, twice.
__global__ void RunMessages(FaultyArgs args) {
  struct alignas(16) Number {
    double value[2];
  };
  __shared__ Number inbox;
  __shared__ MessageCount counts[2];
  const auto rank = static_cast<int>(__clusterRelativeBlockRank());
  const auto size = static_cast<int>(__clusterSizeInBlocks());
  const int i = static_cast<int>(threadIdx.x);
  if (i == 0) {
    for (MessageCount& count : counts) InitCount(&count);
  }
  ClusterSync();
  if (args.fault == Fault::kMessageToABlockThatHasEnded && rank == 1) return;
  const Number number = {static_cast<double>(rank), 1.0};
  const int to = (rank + 1) % size;
  for (int turn = 0; turn < 2; ++turn) {
    if (i == 0) {
      SendTo(to, &inbox, number, &counts[turn]);
      if (args.fault != Fault::kMessageThatIsNotExpected) {
        ExpectBytes(&counts[turn], sizeof(Number));
      }
    }
    if (args.fault != Fault::kMessageNotWaitedFor) {
      WaitForBytes(&counts[turn],
                   args.fault == Fault::kMessageOfAnotherPhase ? 1 : 0);
    }
    if (blockIdx.x == 0) args.out[i] = static_cast<float>(inbox.value[0]);
    if (args.fault != Fault::kMessageBeforeItsMemoryIsFree) ClusterSync();
  }
}

__global__ void RunCopies(FaultyArgs args) {
  __shared__ alignas(16) float values[kFaultyThreads];
  const int i = static_cast<int>(threadIdx.x);
  if (args.fault == Fault::kCopyMisaligned) {
    __pipeline_memcpy_async(values + (i | 1), args.in + (i | 1), 8);
    return;
  }
  __pipeline_memcpy_async(values + i, args.in + i, 4);
  __pipeline_commit();
  if (args.fault == Fault::kCopyAtTheEnd) return;
  __pipeline_wait_prior(args.fault == Fault::kCopyNotWaitedFor ? 1 : 0);
  args.out[i] = values[args.fault == Fault::kCopyOfAnotherThread ? i ^ 1 : i];
  __pipeline_wait_prior(0);
}

}  // namespace

int RunFaulty(const FaultyArgs& args, unsigned blocks) {
  if (args.fault >= Fault::kCopyNone) {
    RunCopies<<<blocks, kFaultyThreads, 0, nullptr>>>(args);
    return static_cast<int>(cudaGetLastError());
  }
  Run<<<blocks, kFaultyThreads, 0, nullptr>>>(args);
  return static_cast<int>(cudaGetLastError());
}

int RunFaultyClusters(const FaultyArgs& args,
                      unsigned blocks,
                      unsigned cluster) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  const cudaLaunchConfig_t config = {
      dim3(blocks), dim3(kFaultyThreads), 0, nullptr, &attribute, 1};
  cudaLaunchKernelEx(
      &config,
      args.fault >= Fault::kMessageNone ? RunMessages : RunInClusters,
      args);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace dapd::fake
