#include "common/generation/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace dapd {
namespace {

// "max" and a file that is not there are no number.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

}  // namespace

int64_t AvailableMemory() {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> name >> kib && std::getline(meminfo, unit)) {
    if (name == "MemAvailable:") bytes = kib * 1024;
  }
  // A container sees its own group at the root.
  const std::optional<int64_t> limit = ReadNumber("/sys/fs/cgroup/memory.max");
  const std::optional<int64_t> used =
      ReadNumber("/sys/fs/cgroup/memory.current");
  if (limit.has_value() && used.has_value()) {
    bytes = std::min(bytes, std::max<int64_t>(0, *limit - *used));
  }
  return bytes;
}

}  // namespace dapd
