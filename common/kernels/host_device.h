// DAPD_HOST_DEVICE marks mathematics that CPU and GPU kernels share: nvcc
// compiles it for both sides, any other compiler for the host. So machines
// without a GPU can test what a GPU computes (docs/cuda.md).
#pragma once

#ifdef __CUDACC__
#define DAPD_HOST_DEVICE __host__ __device__
#else
#define DAPD_HOST_DEVICE
#endif
