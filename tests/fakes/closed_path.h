// Makes a file or folder unusable for a while.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace dapd {

// While the object lives, `path` has only the permissions `mode`. A test that
// runs as root changes its user meanwhile, since root ignores permissions.
// Afterwards the owner has all permissions.
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
