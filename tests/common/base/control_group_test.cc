#include "common/base/control_group.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class ControlGroupTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  // Returns the groups as texts such as "v1 memory/a".
  std::vector<std::string> Groups(const std::string& controller) const {
    std::vector<std::string> texts;
    const std::string all = root_ + "/sys/fs/cgroup";
    for (const ControlGroup& group : ControlGroups(controller, root_)) {
      EXPECT_EQ(group.folder.substr(0, all.size()), all);
      texts.push_back((group.is_v1 ? "v1 " : "v2 ") +
                      group.folder.substr(all.size()));
    }
    return texts;
  }

  const std::string root_ = TempPath("root");
};

using Texts = std::vector<std::string>;

TEST_F(ControlGroupTest, InVersionTwoAllControllersHaveTheSameGroups) {
  EXPECT_EQ(Groups("memory"), Texts{"v2 "});
  Write("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n");
  EXPECT_EQ(Groups("memory"), (Texts{"v2 /a/b", "v2 /a", "v2 "}));
  EXPECT_EQ(Groups("pids"), Groups("memory"));
}

TEST_F(ControlGroupTest, InVersionOneEachControllerHasItsOwn) {
  Write("proc/self/cgroup",
        "7:memory:/a/b\n5:cpu,cpuacct:/c\n4:cpuset:/d\n0::/e\n");
  Write("sys/fs/cgroup/memory/tasks", "");
  Write("sys/fs/cgroup/cpu,cpuacct/tasks", "");
  EXPECT_EQ(Groups("memory"),
            (Texts{"v1 /memory/a/b", "v1 /memory/a", "v1 /memory"}));
  EXPECT_EQ(Groups("cpu"), (Texts{"v1 /cpu,cpuacct/c", "v1 /cpu,cpuacct"}))
      << "without the link of that name";
  Write("sys/fs/cgroup/cpu/tasks", "");
  EXPECT_EQ(Groups("cpu"), (Texts{"v1 /cpu/c", "v1 /cpu"}));
  EXPECT_EQ(Groups("pids"), (Texts{"v2 /e", "v2 "})) << "the other version's";
}

TEST_F(ControlGroupTest, ANumberIsReadAndNoLimitIsNone) {
  Write("sys/fs/cgroup/pids.max", "30\n");
  Write("sys/fs/cgroup/memory.max", "max\n");
  const ControlGroup group = ControlGroups("pids", root_).front();
  EXPECT_EQ(ReadGroupNumber(group, "pids.max"), 30);
  EXPECT_FALSE(ReadGroupNumber(group, "memory.max").has_value());
  EXPECT_FALSE(ReadGroupNumber(group, "pids.current").has_value());
}

}  // namespace
}  // namespace dapd
