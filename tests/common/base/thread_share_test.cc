#include "common/base/thread_share.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

TEST(ThreadShareTest, ProcessesShareTheThreadsThatAContainerMayUse) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_EQ(ThreadsOfEach(1), 7);
  EXPECT_EQ(ThreadsOfEach(3), 2);
  EXPECT_EQ(ThreadsOfEach(9), 1);
}

TEST(ThreadShareTest, WithoutALimitTheyShareTheUsableCores) {
  const int64_t cores = UsableCores();
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(ThreadsOfEach(1), std::max<int64_t>(1, cores));
  EXPECT_EQ(ThreadsOfEach(cores + 1), 1);
  for (const char* no_limit : {"", "0", "many"}) {
    ::setenv("OMP_NUM_THREADS", no_limit, 1);
    EXPECT_EQ(ThreadsOfEach(1), cores) << no_limit;
  }
  ::setenv("OMP_NUM_THREADS", "7,2", 1);
  EXPECT_EQ(ThreadsOfEach(1), 7) << "of nested loops";
}

TEST(ThreadShareTest, ACoreThatTheProcessMayNotRunOnIsNotUsable) {
  std::thread([] {
    cpu_set_t one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(one), &one), 0);
    const int core = [&] {
      int first = 0;
      while (!CPU_ISSET(first, &one)) ++first;
      return first;
    }();
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(UsableCores(), 1);
  }).join();
}

class ControlledTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

  const std::string root_ = TempPath("root");
  const int64_t all_ = UsableCores(root_);
};

TEST_F(ControlledTest, AContainersShareOfTheTimeCountsInWholeCores) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCores(root_), all_);
  Write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
  Write("sys/fs/cgroup/cpu.max", "110000 100000\n");
  EXPECT_EQ(UsableCores(root_), std::min<int64_t>(2, all_));
  Write("sys/fs/cgroup/cpu.max", "25000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
  Write("sys/fs/cgroup/cpu.max", "6400000 100000\n");
  EXPECT_EQ(UsableCores(root_), std::min<int64_t>(64, all_));
}

TEST_F(ControlledTest, TheGroupOfAJobCountsAndThoseAroundIt) {
  Write("proc/self/cgroup", "1:name=systemd:/x\n0::/system.slice/job/step\n");
  Write("sys/fs/cgroup/system.slice/job/cpu.max", "90000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
  Write("sys/fs/cgroup/system.slice/job/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/system.slice/job/step/cpu.max", "50000 50000\n");
  EXPECT_EQ(UsableCores(root_), 1);
}

TEST_F(ControlledTest, TheFirstVersionOfControlGroupsLimitsAsTheSecond) {
  Write("proc/self/cgroup", "2:cpu,cpuacct:/job\n0::/\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), all_);
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "90000\n");
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
}

}  // namespace
}  // namespace dapd
