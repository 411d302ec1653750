#include "tests/fakes/cuda/device.h"

#include "tests/fakes/cuda/cuda_runtime.h"
#include "tests/fakes/cuda/grid_run.h"

namespace dapd::fake {
namespace {

constexpr size_t kGlobalBytes = size_t{64} << 20;

struct Device {
  CheckedMemory global{kGlobalBytes};
  uint32_t seed = 1;
  std::string report;
  cudaError_t error = cudaSuccess;
};

Device& TheDevice() {
  static auto* device = new Device;
  return *device;
}

GridRun* running = nullptr;  // the launch under way

}  // namespace

CheckedMemory& GlobalMemory() { return TheDevice().global; }

void SetSchedule(uint32_t seed) { TheDevice().seed = seed; }

std::string TakeReport() { return std::exchange(TheDevice().report, ""); }

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

void RunGrid(const char* kernel,
             dim3 grid,
             dim3 block,
             size_t dynamic_shared_bytes,
             void (*call)(const void*),
             const void* arguments) {
  Device& device = TheDevice();
  if (dynamic_shared_bytes != 0 || !GridRun::IsValid(grid, block)) {
    device.error = cudaErrorInvalidConfiguration;
    return;
  }
  GridRun run(
      {kernel, grid, block, call, arguments}, device.global, device.seed);
  running = &run;
  std::string report = run.Run();
  running = nullptr;
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

namespace {

template <typename T>
T AddAtomically(T* to, T value) {
  dapd::fake::WatchAccess(to, sizeof(T), dapd::fake::Access::kAtomic);
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
