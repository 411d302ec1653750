// A file or folder that may not be used for a while.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace dapd {

// For as long as it lives `path` has no permissions but `mode`, and a test that
// runs as root runs as somebody else, since root may use it all the same. Then
// its owner may do anything with it.
class ClosedPath {
 public:
  explicit ClosedPath(std::string path, mode_t mode = 0)
      : path_(std::move(path)), is_root_(::geteuid() == 0) {
    EXPECT_EQ(::chmod(path_.c_str(), mode), 0) << path_;
    if (is_root_) {
      EXPECT_EQ(::seteuid(kNobody), 0);
    }
  }
  ~ClosedPath() {
    if (is_root_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
    EXPECT_EQ(::chmod(path_.c_str(), S_IRWXU), 0) << path_;
  }
  ClosedPath(const ClosedPath&) = delete;
  ClosedPath& operator=(const ClosedPath&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;

  std::string path_;
  bool is_root_;
};

}  // namespace dapd
