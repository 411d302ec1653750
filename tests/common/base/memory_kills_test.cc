#include "common/base/memory_kills.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class MemoryKillsTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::string whole = root_ + path;
    ASSERT_TRUE(MakeDirectories(whole.substr(0, whole.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomically(whole, text).ok());
  }

  const std::string root_ = TempPath("root");
};

TEST_F(MemoryKillsTest, OfTheProcesssOwnGroup) {
  Write("/proc/self/cgroup", "0::/jobs/mine\n");
  Write("/sys/fs/cgroup/memory.events", "oom 9\noom_kill 9\n");
  Write("/sys/fs/cgroup/jobs/mine/memory.events",
        "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n");
  const MemoryKills kills = CountMemoryKills(root_);
  EXPECT_EQ(kills.count, 2);
  EXPECT_TRUE(kills.is_complete);
}

TEST_F(MemoryKillsTest, OfAContainerThatIsItsOwnRoot) {
  Write("/proc/self/cgroup", "0::/../outside\n");
  Write("/sys/fs/cgroup/memory.events", "oom_kill 4\n");
  EXPECT_EQ(CountMemoryKills(root_).count, 4);
}

TEST_F(MemoryKillsTest, OfVersion1AndOfTheMachine) {
  Write("/proc/vmstat", "pgfault 12\noom_kill 5\n");
  EXPECT_EQ(CountMemoryKills(root_).count, 5);
  Write("/proc/self/cgroup", "4:memory:/job\n1:cpu:/other\n0::/\n");
  Write("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(CountMemoryKills(root_).count, 3);
  EXPECT_FALSE(CountMemoryKills(root_).is_complete);
}

TEST_F(MemoryKillsTest, NobodySays) {
  EXPECT_EQ(CountMemoryKills(root_).count, -1);
  Write("/proc/vmstat", "pgfault 12\n");
  EXPECT_EQ(CountMemoryKills(root_).count, -1);
}

TEST_F(MemoryKillsTest, WhoKilledIsSaidAsFarAsItIsKnown) {
  EXPECT_EQ(WhoKilled({2, true}, {3, true}),
            ", by the kernel for want of memory");
  EXPECT_EQ(WhoKilled({0}, {1}), ", by the kernel for want of memory");
  EXPECT_EQ(WhoKilled({2, true}, {2, true}),
            ", by somebody else than the kernel, which counts no kill for want "
            "of memory");
  for (const MemoryKills& kills : {MemoryKills{0}, MemoryKills{-1}}) {
    EXPECT_EQ(WhoKilled(kills, kills),
              ", most likely by the kernel for want of memory");
  }
}

}  // namespace
}  // namespace dapd
