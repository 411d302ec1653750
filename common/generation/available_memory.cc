#include "common/generation/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "common/base/control_group.h"
#include "common/base/files.h"

namespace dapd {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

int64_t AvailableOfMachine(const std::string& root) {
  std::ifstream meminfo(JoinPath(root, "proc/meminfo"));
  std::string name;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> name >> kib && std::getline(meminfo, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return kNoLimit;
}

// "max" and a file that is not there are no number.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Of files on a disk: what is in a tmpfs cannot be given up.
int64_t FileBytes(const std::string& group) {
  std::ifstream stat(JoinPath(group, "memory.stat"));
  int64_t sum = 0;
  std::string name;
  int64_t bytes = 0;
  while (stat >> name >> bytes) {
    if (name == "active_file" || name == "inactive_file") sum += bytes;
  }
  return sum;
}

int64_t AvailableInGroup(const std::string& group) {
  const std::optional<int64_t> limit =
      ReadNumber(JoinPath(group, "memory.max"));
  const std::optional<int64_t> used =
      ReadNumber(JoinPath(group, "memory.current"));
  if (!limit.has_value() || !used.has_value()) return kNoLimit;
  return std::max<int64_t>(0, *limit - *used + FileBytes(group));
}

}  // namespace

int64_t AvailableMemory(const std::string& root) {
  int64_t bytes = AvailableOfMachine(root);
  for (const std::string& group : ControlGroups(root)) {
    bytes = std::min(bytes, AvailableInGroup(group));
  }
  return bytes;
}

}  // namespace dapd
