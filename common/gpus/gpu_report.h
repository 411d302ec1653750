// Decides on which GPUs a process can compute. If it cannot compute on any GPU,
// or not on the GPUs that it was told to use, says why and what to do.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/gpus/driver_facts.h"
#include "common/gpus/gpu.h"

namespace dapd {

// CUDA 13 needs this driver, and this project's kernels need this compute
// capability (sm_80).
inline constexpr int kLeastCudaVersion = 13000;
inline constexpr char kLeastDriver[] = "580";
inline constexpr int kLeastCapability = 80;

struct GpuReport {
  std::string driver;    // "580.82.07"; empty if none is loaded
  int cuda_version = 0;  // see DriverFacts
  // In the order in which the process sees them, which CUDA_VISIBLE_DEVICES
  // decides.
  std::vector<Gpu> gpus;
  // Returns OK if all of these GPUs can be used and there is at least one.
  // Returns NOT_FOUND if there is no GPU, or if all are hidden on purpose.
  // Returns FAILED_PRECONDITION if there are GPUs, and something prevents their
  // use. Returns INVALID_ARGUMENT if CUDA_VISIBLE_DEVICES must be corrected.
  absl::Status usable;
};

// Returns "13.0" for 13000.
std::string CudaVersionText(int version);

// FindGpus() returns JudgeGpus(ReadDriverFacts()). Tests call JudgeGpus.
GpuReport JudgeGpus(DriverFacts facts);

GpuReport FindGpus(const DriverSources& sources = {});

// Returns the names of the GPUs of `report`, a report of this process, as
// CUDA_VISIBLE_DEVICES writes them and in its order. If it is not set, the
// names are the numbers of the GPUs that the driver finds. These are not always
// the GPUs in /dev, which may have none (WSL), or some that this process may
// not open (a shell that was attached to a Slurm job on a few of a node's
// GPUs). Without a driver, returns VisibleGpus.
std::vector<std::string> GpuNames(const GpuReport& report);

// Returns the names of the GPUs on which this process computes with `device`
// (model.device); empty for the CPU.
std::vector<std::string> GpusToComputeOn(DeviceChoice device);

// Returns a line for each kind of GPU: "2 of 79.2 GiB, 78.9 GiB free: NVIDIA
// H100 80GB HBM3 (sm_90)".
std::vector<std::string> DescribeGpus(const std::vector<Gpu>& gpus);

}  // namespace dapd
