// Stands in for CUDA's header of this name where the project's kernels are
// compiled as C++ (README.md): the part of the language and of the runtime that
// they use. What C++ cannot say, launches and shared variables,
// host_source.cmake turns into Launch and SharedVariable.
//
// A kernel that needs something which is missing here does not compile. Add it,
// with a test in fake_device_test.cc.
#pragma once

#include <math.h>

#include <cstdint>
#include <tuple>
#include <utility>

#include "tests/fakes/cuda/warp_lanes.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719,
};
struct CUstream_st;
using cudaStream_t = CUstream_st*;

// The last launch's error, once; the other leaves it there.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device);

struct dim3 {
  unsigned x;
  unsigned y;
  unsigned z;
  // As with CUDA a number of threads is a dim3.
  dim3(unsigned x_of = 1, unsigned y_of = 1, unsigned z_of = 1)
      : x(x_of), y(y_of), z(z_of) {}
};

// What a launch says beyond grid, block and bytes: the blocks of a cluster, and
// that it may begin before the launch in front of it has ended.
enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  union {
    struct {
      unsigned x;
      unsigned y;
      unsigned z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 13,
};
namespace dapd::fake {

// Of the calling thread.
dim3 ThreadIndex();
dim3 BlockIndex();
dim3 BlockSize();
dim3 GridSize();

// __syncthreads and its kin: the number of threads whose `predicate` holds.
int MeetBlock(bool predicate, Site site);

// What the block has for the variable behind this declaration.
void* SharedMemory(const char* name,
                   const void* declaration,
                   size_t bytes,
                   size_t alignment);

template <typename T, size_t kAlignment = alignof(T)>
T& SharedVariable(const char* name, const void* declaration) {
  return *static_cast<T*>(
      SharedMemory(name, declaration, sizeof(T), kAlignment));
}

// What the launch has asked for, of the block; aligned to 16 bytes.
void* DynamicSharedMemory();
template <typename T>
T* DynamicShared() {
  return static_cast<T*>(DynamicSharedMemory());
}

// Of the calling thread's block in its cluster.
unsigned ClusterRank();
unsigned ClusterSize();
// __cluster_barrier_arrive and __cluster_barrier_wait.
void ArriveAtCluster(Site site);
void WaitForCluster(Site site);
// Where a shared variable of this block lies in the block `rank`.
void* MapShared(const void* address, unsigned rank);

// Messages between blocks (common/kernels/cuda/cluster_messages.cuh). Their
// bytes arrive some time later, and nobody has written them until a thread of
// their receiver has waited.
void InitCount(void* count);
void ExpectBytes(void* count, int bytes);
void SendBytes(int rank, void* to, const void* from, size_t bytes, void* count);
void WaitForBytes(void* count, int parity);

// __pipeline_memcpy_async and its kin: the bytes arrive when they are waited
// for, and until then nobody has written them.
void CopyLater(void* to, const void* from, size_t bytes, Site site);
void CommitCopies();
void WaitForCopies(size_t but_for);

// cudaGridDependencySynchronize and cudaTriggerProgrammaticLaunchCompletion.
void WaitForLaunchBefore();
void LetNextLaunchBegin();

// How a kernel is launched.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t dynamic_shared_bytes = 0;
  unsigned cluster = 1;          // blocks side by side in x
  bool early = false;            // before the launch in front of it has ended
  const void* kernel = nullptr;  // whose attributes count; null: the defaults
};

// Runs call(arguments) in every thread of a grid.
void RunGrid(const char* kernel,
             const LaunchShape& shape,
             void (*call)(const void*),
             const void* arguments);
void SetKernelAttribute(const void* kernel, cudaFuncAttribute what, int value);
// 0 where the device has no place for such clusters.
int ActiveClusters(const LaunchShape& shape);
inline LaunchShape ShapeOf(const cudaLaunchConfig_t& config,
                           const void* kernel) {
  LaunchShape shape{.grid = config.gridDim,
                    .block = config.blockDim,
                    .dynamic_shared_bytes = config.dynamicSmemBytes,
                    .kernel = kernel};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    switch (config.attrs[i].id) {
      case cudaLaunchAttributeClusterDimension:
        shape.cluster = config.attrs[i].val.clusterDim.x;
        break;
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        shape.early =
            config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
        break;
    }
  }
  return shape;
}

// kernel<<<grid, block, dynamic_shared_bytes, stream>>>(parameters).
template <typename... Parameters>
class Launch {
 public:
  Launch(const char* name,
         void (*kernel)(Parameters...),
         dim3 grid,
         dim3 block,
         size_t dynamic_shared_bytes,
         cudaStream_t /*stream*/)
      : name_(name),
        kernel_(kernel),
        shape_{.grid = grid,
               .block = block,
               .dynamic_shared_bytes = dynamic_shared_bytes,
               .kernel = reinterpret_cast<const void*>(kernel)} {}
  Launch(const char* name,
         const cudaLaunchConfig_t& config,
         void (*kernel)(Parameters...))
      : name_(name),
        kernel_(kernel),
        shape_(ShapeOf(config, reinterpret_cast<const void*>(kernel))) {}

  void operator()(const Parameters&... parameters) const {
    const Arguments arguments{kernel_, {parameters...}};
    RunGrid(name_, shape_, &Call, &arguments);
  }

 private:
  struct Arguments {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };

  // Not watched: it reads the host's memory, where the arguments are.
  __attribute__((no_sanitize("thread"))) static void Call(const void* opaque) {
    CallWith(*static_cast<const Arguments*>(opaque),
             std::index_sequence_for<Parameters...>());
  }
  template <size_t... kIndex>
  __attribute__((no_sanitize("thread"))) static void CallWith(
      const Arguments& arguments, std::index_sequence<kIndex...>) {
    arguments.kernel(std::get<kIndex>(arguments.parameters)...);
  }

  const char* name_;
  void (*kernel_)(Parameters...);
  LaunchShape shape_;
};

}  // namespace dapd::fake

// A cudaLaunchConfig_t is written without the names of its first fields, which
// these are, too.
#define threadIdx (::dapd::fake::ThreadIndex())
#define blockIdx (::dapd::fake::BlockIndex())
#define blockDim (::dapd::fake::BlockSize())
#define gridDim (::dapd::fake::GridSize())

namespace dapd::fake {

template <typename... Parameters, typename... Arguments>
cudaError_t LaunchFrom(const char* caller,
                       const cudaLaunchConfig_t* config,
                       void (*kernel)(Parameters...),
                       Arguments&&... arguments) {
  Launch launch(caller, *config, kernel);
  launch(std::forward<Arguments>(arguments)...);
  return cudaPeekAtLastError();
}

}  // namespace dapd::fake

// A pointer to a kernel has no name, but the function that launches it, with
// its template arguments, says which one it is.
#define cudaLaunchKernelEx(...) \
  ::dapd::fake::LaunchFrom(__PRETTY_FUNCTION__, __VA_ARGS__)

inline void cudaGridDependencySynchronize() {
  dapd::fake::WaitForLaunchBefore();
}
// The host's launches run one after another: nothing begins.
inline void cudaTriggerProgrammaticLaunchCompletion() {
  dapd::fake::LetNextLaunchBegin();
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel,
                                 cudaFuncAttribute what,
                                 int value) {
  dapd::fake::SetKernelAttribute(
      reinterpret_cast<const void*>(kernel), what, value);
  return cudaSuccess;
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* count,
                                           Kernel* kernel,
                                           const cudaLaunchConfig_t* config) {
  *count = dapd::fake::ActiveClusters(
      dapd::fake::ShapeOf(*config, reinterpret_cast<const void*>(kernel)));
  return cudaSuccess;
}

inline unsigned __clusterRelativeBlockRank() {
  return dapd::fake::ClusterRank();
}
inline unsigned __clusterSizeInBlocks() { return dapd::fake::ClusterSize(); }
inline void* __cluster_map_shared_rank(const void* address, unsigned rank) {
  return dapd::fake::MapShared(address, rank);
}
inline void __cluster_barrier_arrive(const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
  dapd::fake::ArriveAtCluster({file, line});
}
inline void __cluster_barrier_wait(const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) {
  dapd::fake::WaitForCluster({file, line});
}

// The last two parameters of what follows say where it is called.

inline void __syncthreads(const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  dapd::fake::MeetBlock(false, {file, line});
}
inline int __syncthreads_count(int predicate,
                               const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return dapd::fake::MeetBlock(predicate != 0, {file, line});
}
inline int __syncthreads_or(int predicate,
                            const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return __syncthreads_count(predicate, file, line) > 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate,
                             const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  return __syncthreads_count(predicate == 0 ? 1 : 0, file, line) == 0 ? 1 : 0;
}

// What the caller's block has written before its last barrier is there for a
// block whose thread 0 counts at the same place later and that fences again.
void __threadfence();

// A load past the L1 cache, which is not simulated.
template <typename T>
T __ldcg(const T* from) {
  return *from;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

// From 0 up to `last` and then 0 again; the old value.
unsigned atomicInc(unsigned* to, unsigned last);

int atomicAdd(int* to, int value);
unsigned atomicAdd(unsigned* to, unsigned value);
unsigned long long atomicAdd(unsigned long long* to, unsigned long long value);
float atomicAdd(float* to, float value);

template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
