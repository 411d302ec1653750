#include "common/base/control_group.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/files.h"

namespace dapd {
namespace {

// A hierarchy and the group of this process in it.
struct Membership {
  std::string folder;  // of the hierarchy
  std::string group;   // "/a/b" for b within a; "" for the root group
  bool is_v1 = false;
};

bool HasController(absl::string_view controllers, const std::string& wanted) {
  for (const absl::string_view controller : absl::StrSplit(controllers, ',')) {
    if (controller == wanted) return true;
  }
  return false;
}

// A line of /proc/self/cgroup is "number:controllers:/group"; the hierarchy of
// v2 has the number 0 and names no controllers.
Membership FindMembership(const std::string& controller,
                          const std::string& root) {
  const std::string all = JoinPath(root, "sys/fs/cgroup");
  Membership found{.folder = all};
  std::ifstream groups(JoinPath(root, "proc/self/cgroup"));
  std::string line;
  while (std::getline(groups, line)) {
    const std::pair<absl::string_view, absl::string_view> numbered =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const std::pair<absl::string_view, absl::string_view> named =
        absl::StrSplit(numbered.second, absl::MaxSplits(':', 1));
    const std::string group(named.second == "/" ? "" : named.second);
    if (HasController(named.first, controller)) {
      // Controllers that share a hierarchy have it under each of their names,
      // or under the whole list.
      const std::string alone = JoinPath(all, controller);
      return {.folder = FileExists(alone) ? alone : JoinPath(all, named.first),
              .group = group,
              .is_v1 = true};
    }
    if (numbered.first == "0" && named.first.empty()) found.group = group;
  }
  return found;
}

}  // namespace

std::vector<ControlGroup> ControlGroups(const std::string& controller,
                                        const std::string& root) {
  Membership own = FindMembership(controller, root);
  std::vector<ControlGroup> groups;
  while (true) {
    groups.push_back(
        {.folder = absl::StrCat(own.folder, own.group), .is_v1 = own.is_v1});
    const size_t last = own.group.rfind('/');
    if (last == std::string::npos) return groups;
    own.group.resize(last);
  }
}

std::optional<int64_t> ReadGroupNumber(const ControlGroup& group,
                                       const std::string& file) {
  std::ifstream stream(JoinPath(group.folder, file));
  int64_t value = 0;
  if (stream >> value) return value;
  return std::nullopt;
}

}  // namespace dapd
