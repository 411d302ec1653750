#include "common/base/control_group.h"

#include <fstream>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"

namespace dapd {
namespace {

// "/a/b" for the group b within a; "" for the one at the root, where a
// container sees its own.
std::string OwnGroup(const std::string& root) {
  std::ifstream groups(JoinPath(root, "proc/self/cgroup"));
  std::string line;
  while (std::getline(groups, line)) {
    if (line.starts_with("0::/") && line != "0::/") return line.substr(3);
  }
  return "";
}

}  // namespace

std::vector<std::string> ControlGroups(const std::string& root) {
  const std::string all = JoinPath(root, "sys/fs/cgroup");
  std::vector<std::string> folders;
  std::string group = OwnGroup(root);
  while (true) {
    folders.push_back(absl::StrCat(all, group));
    if (group.empty()) return folders;
    group.resize(group.rfind('/'));
  }
}

}  // namespace dapd
