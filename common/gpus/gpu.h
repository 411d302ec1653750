// Describes a GPU as NVIDIA's driver does, and the choice between a GPU and the
// CPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace dapd {

// Memory is shown in gibibytes.
inline constexpr double kGiB = 1 << 30;

// Where a process computes; kAuto: on a GPU where one can be used.
enum class DeviceChoice { kAuto, kCpu, kCuda };
constexpr auto NameTable(DeviceChoice) {
  return std::array{"auto", "cpu", "cuda"};
}

struct Gpu {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string uuid;  // "GPU-" or "MIG-" and 32 digits with dashes
  // The compute capability: 9 and 0 mean sm_90.
  int major = 0;
  int minor = 0;
  int64_t total_bytes = 0;
  // Memory that no process has taken; unset if the driver does not report it.
  std::optional<int64_t> free_bytes;
};

}  // namespace dapd
