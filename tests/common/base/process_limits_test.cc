#include "common/base/process_limits.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using testing::HasSubstr;

class ProcessLimitsTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  std::string Refusal(const ProcessNeeds& needs) const {
    const absl::Status status = CheckProcessLimits(needs, root_);
    if (status.ok()) return "";
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
    return std::string(status.message());
  }

  const std::string root_ = TempPath("root");
};

TEST_F(ProcessLimitsTest, AContainersLimitOfThreadsCountsInBothVersions) {
  Write("proc/self/cgroup", "0::/job\n");
  Write("sys/fs/cgroup/job/pids.max", "max\n");
  EXPECT_EQ(Refusal({.threads = 100}), "");
  Write("sys/fs/cgroup/pids.max", "30\n");
  Write("sys/fs/cgroup/pids.current", "8\n");
  EXPECT_EQ(Refusal({.threads = 22}), "");
  EXPECT_THAT(Refusal({.threads = 23}),
              HasSubstr("too few threads: about 23 are needed, and 22 are "
                        "left; " +
                        root_ + "/sys/fs/cgroup/pids.max is 30"));
  Write("proc/self/cgroup", "3:pids:/job\n0::/\n");
  Write("sys/fs/cgroup/pids/job/pids.max", "90\n");
  Write("sys/fs/cgroup/pids/job/pids.current", "95\n");
  EXPECT_THAT(Refusal({.threads = 1}), HasSubstr("0 are left; "));
}

TEST_F(ProcessLimitsTest, TheLimitOfFilesIsTheHardOne) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit soft = before;
  soft.rlim_cur = 16;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &soft), 0);
  EXPECT_EQ(Refusal({.files = 64}), "") << "a service raises it";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto beyond = static_cast<int64_t>(before.rlim_max) + 1;
  EXPECT_THAT(Refusal({.files = beyond}),
              HasSubstr("too few open files: about " + std::to_string(beyond)));
}

}  // namespace
}  // namespace dapd
