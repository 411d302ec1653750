#include "common/generation/available_memory.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include "gtest/gtest.h"

#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

constexpr int64_t kMib = 1024 * 1024;

class AvailableMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void MakeMachine(int64_t mib) const {
    Write("proc/meminfo",
          "MemTotal:       99999999 kB\nMemFree:            1024 kB\n"
          "MemAvailable:   " +
              std::to_string(mib * 1024) + " kB\nBuffers:  7 kB\n");
  }
  // `group` is "" or a path such as "/a/b".
  void MakeGroup(const std::string& group,
                 const std::string& max,
                 int64_t current,
                 int64_t inactive_file = 0,
                 int64_t active_file = 0) const {
    const std::string folder = "sys/fs/cgroup" + group + "/";
    Write(folder + "memory.max", max + "\n");
    Write(folder + "memory.current", std::to_string(current) + "\n");
    Write(folder + "memory.stat",
          "anon 5\nfile 77\nshmem 4096\ninactive_file " +
              std::to_string(inactive_file) + "\nactive_file " +
              std::to_string(active_file) + "\nunevictable 3\n");
  }
  int64_t Available() const { return AvailableMemory(root_); }

  const std::string root_ = TempPath("root");
};

TEST_F(AvailableMemoryTest, WithoutALimitItIsTheMachines) {
  MakeMachine(300);
  EXPECT_EQ(Available(), 300 * kMib);
  Write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(Available(), 300 * kMib);
  MakeGroup("", "max", 100 * kMib);
  EXPECT_EQ(Available(), 300 * kMib);
}

TEST_F(AvailableMemoryTest, AContainersLimitLeavesWhatItHasNotTaken) {
  MakeMachine(300);
  Write("proc/self/cgroup", "0::/\n");
  MakeGroup("", std::to_string(200 * kMib), 150 * kMib);
  EXPECT_EQ(Available(), 50 * kMib);
  MakeGroup("", std::to_string(200 * kMib), 210 * kMib);
  EXPECT_EQ(Available(), 0);
  MakeGroup("", std::to_string(900 * kMib), 150 * kMib);
  EXPECT_EQ(Available(), 300 * kMib);
}

TEST_F(AvailableMemoryTest, WhatFilesHaveInMemoryIsFree) {
  MakeMachine(300);
  Write("proc/self/cgroup", "0::/\n");
  MakeGroup("", std::to_string(200 * kMib), 195 * kMib, 60 * kMib, 30 * kMib);
  EXPECT_EQ(Available(), 95 * kMib);
}

TEST_F(AvailableMemoryTest, TheGroupOfAJobIsFoundAndThoseAroundIt) {
  MakeMachine(300);
  Write("proc/self/cgroup", "1:name=systemd:/x\n0::/system.slice/job/step\n");
  MakeGroup("/system.slice/job/step", "max", 10 * kMib);
  EXPECT_EQ(Available(), 300 * kMib);
  MakeGroup("/system.slice/job", std::to_string(100 * kMib), 20 * kMib);
  EXPECT_EQ(Available(), 80 * kMib);
  MakeGroup("/system.slice/job/step", std::to_string(70 * kMib), 10 * kMib);
  EXPECT_EQ(Available(), 60 * kMib);
  MakeGroup("/system.slice/job/step", std::to_string(900 * kMib), 10 * kMib);
  EXPECT_EQ(Available(), 80 * kMib);
}

TEST_F(AvailableMemoryTest, AContainerThatIsToldItsPathOutsideSeesItself) {
  MakeMachine(300);
  Write("proc/self/cgroup", "0::/docker/0123\n");
  MakeGroup("", std::to_string(200 * kMib), 150 * kMib);
  EXPECT_EQ(Available(), 50 * kMib);
}

TEST_F(AvailableMemoryTest, TheFirstVersionOfControlGroupsLimitsAsTheSecond) {
  MakeMachine(3000);
  Write("proc/self/cgroup", "4:memory:/docker/0123\n0::/\n");
  const std::string outer = "sys/fs/cgroup/memory/";
  const std::string inner = outer + "docker/0123/";
  const auto make =
      [&](const std::string& folder, const std::string& limit, int64_t used) {
        Write(folder + "memory.limit_in_bytes", limit + "\n");
        Write(folder + "memory.usage_in_bytes", std::to_string(used) + "\n");
        Write(folder + "memory.stat",
              "inactive_file 7\nactive_file 7\ntotal_inactive_file " +
                  std::to_string(30 * kMib) + "\ntotal_active_file " +
                  std::to_string(10 * kMib) + "\n");
      };
  make(outer, "9223372036854771712", 2000 * kMib);
  EXPECT_EQ(Available(), 3000 * kMib);
  make(inner, std::to_string(900 * kMib), 200 * kMib);
  EXPECT_EQ(Available(), 740 * kMib);
  // A container sees its own group as the outermost group.
  std::filesystem::remove_all(std::filesystem::path(root_) / inner);
  make(outer, std::to_string(500 * kMib), 200 * kMib);
  EXPECT_EQ(Available(), 340 * kMib);
}

TEST_F(AvailableMemoryTest, WhereNothingCanBeReadThereIsNoLimit) {
  EXPECT_EQ(Available(), std::numeric_limits<int64_t>::max());
}

TEST(AvailableMemoryOfThisMachineTest, IsSome) {
  EXPECT_GT(AvailableMemory(), 0);
  EXPECT_LT(AvailableMemory(), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace dapd
