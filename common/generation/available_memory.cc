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

// Returns the bytes of cached files of a disk. Files in a tmpfs do not count,
// because their memory cannot be given up.
int64_t FileBytes(const ControlGroup& group) {
  std::ifstream stat(JoinPath(group.folder, "memory.stat"));
  // In v1 the entries without this prefix leave out the groups within.
  const std::string prefix = group.is_v1 ? "total_" : "";
  int64_t sum = 0;
  std::string name;
  int64_t bytes = 0;
  while (stat >> name >> bytes) {
    if (name == prefix + "active_file" || name == prefix + "inactive_file") {
      sum += bytes;
    }
  }
  return sum;
}

int64_t AvailableInGroup(const ControlGroup& group) {
  const std::optional<int64_t> limit = ReadGroupNumber(
      group, group.is_v1 ? "memory.limit_in_bytes" : "memory.max");
  const std::optional<int64_t> used = ReadGroupNumber(
      group, group.is_v1 ? "memory.usage_in_bytes" : "memory.current");
  if (!limit.has_value() || !used.has_value()) return kNoLimit;
  // In v1 a number near the largest means that there is no limit.
  if (*limit > kNoLimit / 2) return kNoLimit;
  return std::max<int64_t>(0, *limit - *used + FileBytes(group));
}

}  // namespace

int64_t AvailableMemory(const std::string& root) {
  int64_t bytes = AvailableOfMachine(root);
  for (const ControlGroup& group : ControlGroups("memory", root)) {
    bytes = std::min(bytes, AvailableInGroup(group));
  }
  return bytes;
}

}  // namespace dapd
