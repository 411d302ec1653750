#include "tests/fakes/cuda/device.h"

#include <map>

#include "tests/fakes/cuda/cuda_runtime.h"
#include "tests/fakes/cuda/grid_run.h"

namespace dapd::fake {
namespace {

constexpr size_t kGlobalBytes = size_t{64} << 20;

// The attributes that a kernel was given.
struct KernelAttributes {
  size_t dynamic_shared_bytes = size_t{48} << 10;
  bool large_clusters = false;
  int carveout = -1;  // share of the shared memory in percent; -1: the driver's
                      // choice
};

struct Device {
  CheckedMemory global{kGlobalBytes};
  DeviceTraits traits;
  std::map<const void*, KernelAttributes> kernels;
  Traffic traffic;
  Launches launches;
  uint32_t seed = 1;
  std::string report;
  cudaError_t error = cudaSuccess;
};

Device& TheDevice() {
  static auto* device = new Device;
  return *device;
}

GridRun* running = nullptr;  // the running launch

KernelAttributes AttributesOf(const void* kernel) {
  const auto found = TheDevice().kernels.find(kernel);
  return found == TheDevice().kernels.end() ? KernelAttributes()
                                            : found->second;
}

// Returns whether the device takes the launch.
bool IsTaken(const LaunchShape& shape) {
  constexpr unsigned kPortableCluster = 8;
  const Device& device = TheDevice();
  const KernelAttributes attributes = AttributesOf(shape.kernel);
  const unsigned largest =
      attributes.large_clusters
          ? device.traits.largest_cluster
          : std::min(device.traits.largest_cluster, kPortableCluster);
  return GridRun::IsValid(shape) &&
         shape.dynamic_shared_bytes <= attributes.dynamic_shared_bytes &&
         shape.dynamic_shared_bytes <= device.traits.shared_bytes &&
         (!shape.early || device.traits.major >= 9) &&
         (shape.cluster == 1 ||
          (device.traits.major >= 9 && shape.cluster <= largest));
}

}  // namespace

CheckedMemory& GlobalMemory() { return TheDevice().global; }

void SetSchedule(uint32_t seed) { TheDevice().seed = seed; }

void SetTraits(const DeviceTraits& traits) { TheDevice().traits = traits; }

Traffic TakeTraffic() { return std::exchange(TheDevice().traffic, {}); }

Launches TakeLaunches() { return std::exchange(TheDevice().launches, {}); }

std::string TakeReport() { return std::exchange(TheDevice().report, ""); }

bool IsErrorLeft() { return TheDevice().error != cudaSuccess; }

bool IsInKernel() { return running != nullptr && running->IsInThread(); }

void EndKernel(const std::string& reason) { running->Fail(reason); }

void WatchAccess(const void* address, size_t bytes, Access access) {
  if (IsInKernel()) running->Touch(address, bytes, access);
}

dim3 ThreadIndex() { return running->thread_index(); }
dim3 BlockIndex() { return running->block_index(); }
dim3 BlockSize() { return running->block_size(); }
dim3 GridSize() { return running->grid_size(); }
int LaneIndex() { return running->lane(); }

int MeetBlock(bool predicate, Site site) {
  return running->MeetBlock(predicate, site);
}

uint64_t MeetLanes(WarpOperation operation,
                   unsigned mask,
                   uint64_t bits,
                   int source,
                   Site site) {
  return running->MeetLanes({operation, mask, bits, source, site});
}

void* SharedMemory(const char* name,
                   const void* declaration,
                   size_t bytes,
                   size_t alignment) {
  return running->SharedMemory(name, declaration, bytes, alignment);
}

void* DynamicSharedMemory(size_t alignment) {
  return running->DynamicSharedMemory(alignment);
}
unsigned ClusterRank() { return running->cluster_rank(); }
unsigned ClusterSize() { return running->cluster_size(); }
void ArriveAtCluster(Site site) { running->ArriveAtCluster(site); }
void WaitForCluster(Site site) { running->WaitForCluster(site); }
void InitCount(void* count) { running->InitCount(count); }
void ExpectBytes(void* count, int bytes) { running->ExpectBytes(count, bytes); }
void SendBytes(
    int rank, void* to, const void* from, size_t bytes, void* count) {
  running->SendBytes(rank, to, from, bytes, count);
}
void WaitForBytes(void* count, int parity) {
  running->WaitForBytes(count, parity);
}
void* MapShared(const void* address, unsigned rank) {
  return running->MapShared(address, rank);
}
void CopyLater(void* to, const void* from, size_t bytes, Site site) {
  running->CopyLater(to, from, bytes, site);
}
void WaitForLaunchBefore() { running->WaitForLaunchBefore(); }
void LetNextLaunchBegin() { running->LetNextLaunchBegin(); }
void CommitCopies() { running->CommitCopies(); }
void WaitForCopies(size_t but_for) { running->WaitForCopies(but_for); }

void SetKernelAttribute(const void* kernel, cudaFuncAttribute what, int value) {
  KernelAttributes& attributes = TheDevice().kernels[kernel];
  switch (what) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      attributes.dynamic_shared_bytes = static_cast<size_t>(value);
      break;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
      attributes.large_clusters = value != 0;
      break;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      attributes.carveout = value;
      break;
  }
}

int ActiveClusters(const LaunchShape& shape) {
  if (!IsTaken(shape)) return 0;
  const DeviceTraits& traits = TheDevice().traits;
  return std::clamp(traits.multiprocessors / static_cast<int>(shape.cluster),
                    1,
                    traits.most_clusters);
}

void RunGrid(const char* kernel,
             const LaunchShape& shape,
             void (*call)(const void*),
             const void* arguments) {
  Device& device = TheDevice();
  if (!IsTaken(shape)) {
    device.error = cudaErrorInvalidConfiguration;
    return;
  }
  ++(shape.early ? device.launches.early : device.launches.in_turn);
  if (shape.early) {
    device.launches.carveouts.insert(AttributesOf(shape.kernel).carveout);
  }
  device.launches.blocks += int64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  GridRun run({kernel, shape, call, arguments}, device.global, device.seed);
  running = &run;
  std::string report = run.Run();
  running = nullptr;
  device.traffic.bytes_read += run.traffic().bytes_read;
  device.traffic.bytes_written += run.traffic().bytes_written;
  if (report.empty()) return;
  device.error = cudaErrorLaunchFailure;
  if (device.report.empty()) device.report = std::move(report);
}

void FenceBlock() { running->Fence(); }
void CountBlock(const void* place) { running->CountBlock(place); }

}  // namespace dapd::fake

void __threadfence() { dapd::fake::FenceBlock(); }

unsigned atomicInc(unsigned* to, unsigned last) {
  dapd::fake::WatchAccess(to, sizeof(*to), dapd::fake::Access::kAtomic);
  dapd::fake::CountBlock(to);
  return std::exchange(*to, *to >= last ? 0U : *to + 1);
}

cudaError_t cudaGetLastError() {
  return std::exchange(dapd::fake::TheDevice().error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() { return dapd::fake::TheDevice().error; }

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  const dapd::fake::DeviceTraits& traits = dapd::fake::TheDevice().traits;
  switch (what) {
    case cudaDevAttrMultiProcessorCount:
      *value = traits.multiprocessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = traits.major;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(traits.shared_bytes);
      break;
  }
  return cudaSuccess;
}

namespace {

template <typename T>
T AddAtomically(T* to, T value) {
  dapd::fake::WatchAccess(to, sizeof(T), dapd::fake::Access::kAtomic);
  ++dapd::fake::TheDevice().traffic.atomic_additions;
  return std::exchange(*to, *to + value);
}

}  // namespace

int atomicAdd(int* to, int value) { return AddAtomically(to, value); }
unsigned atomicAdd(unsigned* to, unsigned value) {
  return AddAtomically(to, value);
}
unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return AddAtomically(to, value);
}
float atomicAdd(float* to, float value) { return AddAtomically(to, value); }
