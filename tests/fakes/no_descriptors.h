// Makes a process unable to open files for a moment. Open files stay open, and
// stat still works.
#pragma once

#include <sys/resource.h>

#include "gtest/gtest.h"

namespace dapd {

// Takes effect as long as it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit none = before_;
    none.rlim_cur = 0;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_ = {};
};

}  // namespace dapd
