// Which GPUs a process can compute on, and where it can compute on none or not
// as it was told to, why and what to do.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/gpus/driver_facts.h"
#include "common/gpus/gpu.h"

namespace dapd {

// CUDA 13 needs this driver, and our kernels this compute capability (sm_80).
inline constexpr int kLeastCudaVersion = 13000;
inline constexpr char kLeastDriver[] = "580";
inline constexpr int kLeastCapability = 80;

struct GpuReport {
  std::string driver;    // "580.82.07"; empty: none is loaded
  int cuda_version = 0;  // see DriverFacts
  // In the order that a process counts them in, as CUDA_VISIBLE_DEVICES has it.
  std::vector<Gpu> gpus;
  // OK: all of these can be used, and there is at least one. NOT_FOUND: none is
  // here, or all are hidden on purpose. FAILED_PRECONDITION: there are some,
  // and something keeps them from being used. INVALID_ARGUMENT:
  // CUDA_VISIBLE_DEVICES has to be mended.
  absl::Status usable;
};

// "13.0" for 13000.
std::string CudaVersionText(int version);

// For tests; FindGpus is this of ReadDriverFacts.
GpuReport JudgeGpus(DriverFacts facts);

GpuReport FindGpus(const DriverSources& sources = {});

// What CUDA_VISIBLE_DEVICES calls the GPUs of `report`, which is of this
// process, in its order: as it does, or without it by the numbers of those that
// the driver finds. These are not always the ones in /dev, where there may be
// none (WSL), or some that this process may not open (a shell that was let into
// a Slurm job of a few of a node's GPUs). Without a driver VisibleGpus.
std::vector<std::string> GpuNames(const GpuReport& report);

// The names of those that this process computes on by `device` (model.device):
// none where that is the CPU.
std::vector<std::string> GpusToComputeOn(DeviceChoice device);

// "2 of 79.2 GiB, 78.9 GiB free: NVIDIA H100 80GB HBM3 (sm_90)", a line for
// each kind of GPU.
std::vector<std::string> DescribeGpus(const std::vector<Gpu>& gpus);

}  // namespace dapd
