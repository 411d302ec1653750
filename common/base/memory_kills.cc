#include "common/base/memory_kills.h"

#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/files.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxCounts = 1 << 20;

// Returns the number in the line "oom_kill 3".
std::optional<int64_t> KillsIn(const std::string& path) {
  const auto text = ReadFile(path, kMaxCounts);
  if (!text.ok()) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    int64_t count = 0;
    if (absl::ConsumePrefix(&line, "oom_kill ") &&
        absl::SimpleAtoi(line, &count)) {
      return count;
    }
  }
  return std::nullopt;
}

// Returns this process's group in the hierarchy that /proc/self/cgroup names
// so: "" for version 2, "memory" for version 1. A container may see its own
// group as the root.
std::string GroupIn(const std::string& root, absl::string_view hierarchy) {
  const auto text =
      ReadFile(absl::StrCat(root, "/proc/self/cgroup"), kMaxCounts);
  if (!text.ok()) return "";
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3 && parts[1] == hierarchy) {
      return std::string(parts[2]);
    }
  }
  return "";
}

}  // namespace

MemoryKills CountMemoryKills(const std::string& root) {
  for (const std::string& group : {GroupIn(root, ""), std::string()}) {
    const auto kills =
        KillsIn(absl::StrCat(root, "/sys/fs/cgroup", group, "/memory.events"));
    if (kills.has_value()) return {*kills, /*is_complete=*/true};
  }
  for (const std::string& group : {GroupIn(root, "memory"), std::string()}) {
    const auto kills = KillsIn(absl::StrCat(
        root, "/sys/fs/cgroup/memory", group, "/memory.oom_control"));
    if (kills.has_value()) return {*kills};
  }
  return {KillsIn(absl::StrCat(root, "/proc/vmstat")).value_or(-1)};
}

std::string WhoKilled(const MemoryKills& before, const MemoryKills& after) {
  if (before.count >= 0 && after.count > before.count) {
    return ", by the kernel for want of memory";
  }
  if (before.is_complete && after.is_complete) {
    return ", by somebody else than the kernel, which counts no kill for want "
           "of memory";
  }
  return ", most likely by the kernel for want of memory";
}

}  // namespace dapd
