// A path for this test only, so that tests can run side by side.
#pragma once

#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace dapd {

inline std::string TempPath(const std::string& name) {
  const testing::TestInfo* test =
      testing::UnitTest::GetInstance()->current_test_info();
  return testing::TempDir() + "dapd-" + test->test_suite_name() + "." +
         test->name() + "-" + std::to_string(::getpid()) + "-" + name;
}

}  // namespace dapd
