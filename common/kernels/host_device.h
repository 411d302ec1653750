// DAPD_HOST_DEVICE marks mathematics that CPU and GPU kernels share: nvcc
// compiles it for both sides, any other compiler for the host. What a GPU
// computes is thereby tested on machines without one (docs/cuda.md).
#pragma once

#ifdef __CUDACC__
#define DAPD_HOST_DEVICE __host__ __device__
#else
#define DAPD_HOST_DEVICE
#endif
