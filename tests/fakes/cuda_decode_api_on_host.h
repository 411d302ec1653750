// Provides libdapd_cuda.so's functions on a host that simulates the device
// (cuda_on_host.h), with a simulated NCCL between ranks (nccl_ranks.h).
#pragma once

#include "common/generation/cuda/cuda_decode_api.h"

namespace dapd {

inline CudaDecodeApi CudaDecodeApiOnHost() {
  return {.free_bytes = &DapdCudaFreeBytes,
          .merge_workspace = &DapdCudaMergeWorkspace,
          .merge_adapter = &DapdCudaMergeAdapter,
          .workspace = &DapdCudaDecoderWorkspace,
          .create = &DapdCudaDecoderCreate,
          .destroy = &DapdCudaDecoderDestroy,
          .drop_graphs = &DapdCudaDecoderDropGraphs,
          .start = &DapdCudaDecoderStart,
          .extend = &DapdCudaDecoderExtend,
          .stop = &DapdCudaDecoderStop,
          .pause = &DapdCudaDecoderPause,
          .resume = &DapdCudaDecoderContinue,
          .copy_pages = &DapdCudaDecoderCopyPages,
          .take_host_memory = &DapdCudaTakeHostMemory,
          .free_host_memory = &DapdCudaFreeHostMemory,
          .launch = &DapdCudaDecoderLaunch,
          .collect = &DapdCudaDecoderCollect,
          .launched = &DapdCudaDecoderLaunched,
          .running = &DapdCudaDecoderRunning,
          .launch_all_gather = &DapdNcclLaunchAllGather,
          .launch_exchange = &DapdNcclLaunchExchange};
}

}  // namespace dapd
