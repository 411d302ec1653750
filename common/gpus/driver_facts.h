// Reads what NVIDIA's driver reports about itself and its GPUs. Its libraries
// are loaded by name, so that a build without CUDA can read it, too, and a
// build with CUDA need not load CUDA's own libraries. The values are returned
// unchanged; gpu_report.h judges them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/gpus/gpu.h"

namespace dapd {

// These codes of the driver's library have a meaning beyond a failure.
inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaNotReady = 802;
inline constexpr int kCudaDriverMismatch = 803;
inline constexpr int kCudaNotCompatible = 804;

struct DriverFacts {
  // Why libcuda.so.1 could not be loaded; empty if it was loaded.
  std::string library_error;
  // Version of the loaded kernel module, "580.82.07"; empty if none is loaded.
  std::string kernel_module;
  // /dev/nvidia0 and so on, in the order of their numbers, which may have gaps
  // in a container.
  std::vector<std::string> device_nodes;
  // The newest CUDA that the driver supports, 13000 for 13.0; 0 if unknown.
  int cuda_version = 0;
  // The result of cuInit, 0 for success, and its name.
  int init_code = 0;
  std::string init_name;
  // The value of CUDA_VISIBLE_DEVICES, if it is set.
  std::optional<std::string> visible;
  // The GPUs that CUDA sees: the GPUs in `visible`, in its order.
  std::vector<Gpu> gpus;
  // The ids of all GPUs, whatever `visible` says; empty if libnvidia-ml.so.1
  // does not report them.
  std::vector<std::string> all_uuids;
};

// Names the files to read. Tests replace them.
struct DriverSources {
  std::string cuda_library = "libcuda.so.1";
  std::string management_library = "libnvidia-ml.so.1";
  std::string version_file = "/proc/driver/nvidia/version";
  std::string devices = "/dev";
};

// Takes up to a second on a machine with GPUs, and almost no time on other
// machines. Takes no GPU memory.
DriverFacts ReadDriverFacts(const DriverSources& sources = {});

}  // namespace dapd
