// Replaces CUDA's header of this name where the project's kernels are compiled
// as C++ (README.md): it has the part of the language and of the runtime that
// they use. host_source.cmake turns launches and shared variables, which C++
// does not have, into Launch and SharedVariable.
//
// A kernel that needs something that is missing here does not compile. Add it,
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

// cudaGetLastError returns the last launch's error and clears it;
// cudaPeekAtLastError leaves it.
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
  // A number converts to a dim3, as in CUDA.
  dim3(unsigned x_of = 1, unsigned y_of = 1, unsigned z_of = 1)
      : x(x_of), y(y_of), z(z_of) {}
};

// The attributes of a launch beyond grid, block and bytes: the blocks of a
// cluster, and whether it may begin before the launch in front of it has ended.
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

// Return the indices and sizes of the calling thread.
dim3 ThreadIndex();
dim3 BlockIndex();
dim3 BlockSize();
dim3 GridSize();

// Implements __syncthreads and its variants. Returns the number of threads
// whose `predicate` holds.
int MeetBlock(bool predicate, Site site);

// Returns the block's memory for the variable of this declaration.
void* SharedMemory(const char* name,
                   const void* declaration,
                   size_t bytes,
                   size_t alignment);

template <typename T, size_t kAlignment = alignof(T)>
T& SharedVariable(const char* name, const void* declaration) {
  return *static_cast<T*>(
      SharedMemory(name, declaration, sizeof(T), kAlignment));
}

// Returns the block's memory that the launch has asked for.
void* DynamicSharedMemory(size_t alignment);
template <typename T>
T* DynamicShared() {
  constexpr size_t kLeast = 16;
  return static_cast<T*>(
      DynamicSharedMemory(alignof(T) > kLeast ? alignof(T) : kLeast));
}

// Returns the place of the calling thread's block in its cluster.
unsigned ClusterRank();
unsigned ClusterSize();
// Implement __cluster_barrier_arrive and __cluster_barrier_wait.
void ArriveAtCluster(Site site);
void WaitForCluster(Site site);
// Returns the address of a shared variable of this block in the block `rank`.
void* MapShared(const void* address, unsigned rank);

// Messages between blocks (common/kernels/cuda/cluster_messages.cuh). Their
// bytes arrive some time later and count as unwritten until a thread of their
// receiver has waited.
void InitCount(void* count);
void ExpectBytes(void* count, int bytes);
void SendBytes(int rank, void* to, const void* from, size_t bytes, void* count);
void WaitForBytes(void* count, int parity);

// Implement __pipeline_memcpy_async and its variants. The bytes arrive when a
// thread waits for them and count as unwritten until then.
void CopyLater(void* to, const void* from, size_t bytes, Site site);
void CommitCopies();
void WaitForCopies(size_t but_for);

// Implement cudaGridDependencySynchronize and
// cudaTriggerProgrammaticLaunchCompletion.
void WaitForLaunchBefore();
void LetNextLaunchBegin();

// The shape and the attributes of a launch.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t dynamic_shared_bytes = 0;
  unsigned cluster = 1;          // blocks side by side in x
  bool early = false;            // may begin before the launch in front of it
                                 // has ended
  const void* kernel = nullptr;  // whose attributes apply; null: the defaults
};

// Runs call(arguments) in every thread of a grid.
void RunGrid(const char* kernel,
             const LaunchShape& shape,
             void (*call)(const void*),
             const void* arguments);
void SetKernelAttribute(const void* kernel, cudaFuncAttribute what, int value);
// Returns 0 if the device has no room for such clusters.
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

// Stands for kernel<<<grid, block, dynamic_shared_bytes, stream>>>(parameters).
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

  // Its accesses are not watched, because it reads the arguments from the
  // host's memory.
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

// These names are macros and also names of the first fields of
// cudaLaunchConfig_t. So a cudaLaunchConfig_t is initialized without
// designators.
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
// its template arguments, identifies the kernel.
#define cudaLaunchKernelEx(...) \
  ::dapd::fake::LaunchFrom(__PRETTY_FUNCTION__, __VA_ARGS__)

inline void cudaGridDependencySynchronize() {
  dapd::fake::WaitForLaunchBefore();
}
// The host runs launches one after another, so nothing begins here.
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

// The last two parameters of the following functions are the place of the call.

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

// Makes the writes of the caller's block before its last barrier visible to a
// block whose thread 0 later counts at the same place and fences again.
void __threadfence();

// A load past the L1 cache, which is not simulated.
template <typename T>
T __ldcg(const T* from) {
  return *from;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

// Counts from 0 up to `last` and then from 0 again; returns the old value.
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
