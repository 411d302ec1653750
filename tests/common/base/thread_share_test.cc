#include "common/base/thread_share.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(ThreadShareTest, ProcessesShareTheThreadsThatAContainerMayUse) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_EQ(ThreadsOfEach(1), 7);
  EXPECT_EQ(ThreadsOfEach(3), 2);
  EXPECT_EQ(ThreadsOfEach(9), 1);
}

TEST(ThreadShareTest, WithoutALimitTheyShareTheCores) {
  const int64_t cores = std::thread::hardware_concurrency();
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(ThreadsOfEach(1), std::max<int64_t>(1, cores));
  EXPECT_EQ(ThreadsOfEach(cores + 1), 1);
  for (const char* no_limit : {"", "0", "many"}) {
    ::setenv("OMP_NUM_THREADS", no_limit, 1);
    EXPECT_EQ(ThreadsOfEach(1), std::max<int64_t>(1, cores)) << no_limit;
  }
}

}  // namespace
}  // namespace dapd
