// What NVIDIA's driver says of itself and its GPUs. Its libraries are loaded by
// name, so that a build without CUDA can ask as well, and one with it need not
// load CUDA's own for the answer. Everything is taken as it is said; what
// follows from it is gpu_report.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/gpus/gpu.h"

namespace dapd {

// Codes of the driver's library that say more than that it failed.
inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaNotReady = 802;
inline constexpr int kCudaDriverMismatch = 803;

struct DriverFacts {
  // Why libcuda.so.1 could not be loaded; empty: it was.
  std::string library_error;
  // Of the loaded kernel module, "580.82.07"; empty: none is.
  std::string kernel_module;
  // /dev/nvidia0 and the like, in the order of their numbers, which may have
  // gaps in a container.
  std::vector<std::string> device_nodes;
  // The newest CUDA that the driver is for, 13000 for 13.0; 0: not known.
  int cuda_version = 0;
  // What cuInit returned, 0 for success, and its name.
  int init_code = 0;
  std::string init_name;
  // CUDA_VISIBLE_DEVICES.
  std::optional<std::string> visible;
  // What CUDA sees: those that `visible` leaves, in its order.
  std::vector<Gpu> gpus;
  // Of all GPUs, whatever `visible` says; empty where libnvidia-ml.so.1 does
  // not tell.
  std::vector<std::string> all_uuids;
};

// Where to look; for tests to name others.
struct DriverSources {
  std::string cuda_library = "libcuda.so.1";
  std::string management_library = "libnvidia-ml.so.1";
  std::string version_file = "/proc/driver/nvidia/version";
  std::string devices = "/dev";
};

// Takes up to a second on a machine with GPUs, next to nothing on others. Holds
// no GPU memory.
DriverFacts ReadDriverFacts(const DriverSources& sources = {});

}  // namespace dapd
