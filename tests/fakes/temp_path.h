// Makes paths that only the running test uses, so that tests can run in
// parallel.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "gtest/gtest.h"

namespace dapd {

// Represents the folder of this process. It is removed at the end of the
// process, unless a test failed: then its content remains for inspection.
class ScratchFolder {
 public:
  ScratchFolder() {
    // Other users may enter, as in any folder: tests change their user.
    made_ =
        ::mkdtemp(path_.data()) != nullptr && ::chmod(path_.c_str(), 0755) == 0;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    // The child of a death test has its parent's folder, and does not remove
    // it.
    if (!made_ || process_ != ::getpid() ||
        testing::UnitTest::GetInstance()->Failed()) {
      return;
    }
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "dapd-XXXXXX";
  const pid_t process_ = ::getpid();
  bool made_ = false;
};

// Counts how often all tests have been run (--gtest_repeat).
class IterationCounter : public testing::EmptyTestEventListener {
 public:
  // Returns the counter of this process, which GoogleTest owns.
  static const IterationCounter& Instance() {
    static const auto* const counter = [] {
      auto* made = new IterationCounter;
      testing::UnitTest::GetInstance()->listeners().Append(made);
      return made;
    }();
    return *counter;
  }

  int done() const { return done_; }

 private:
  void OnTestIterationEnd(const testing::UnitTest& /*unit_test*/,
                          int /*iteration*/) override {
    ++done_;
  }

  int done_ = 0;
};

// Returns the path of `name` in a folder that only this run of the running test
// uses.
inline std::string TempPath(const std::string& name) {
  static const ScratchFolder scratch;
  const testing::TestInfo* test =
      testing::UnitTest::GetInstance()->current_test_info();
  std::string name_of_test =
      std::string(test->test_suite_name()) + "." + test->name();
  for (char& c : name_of_test) {
    if (c == '/') c = '-';  // in the name of a test with parameters
  }
  const int done = IterationCounter::Instance().done();
  if (done > 0) name_of_test += "." + std::to_string(done);
  const std::string folder = scratch.path() + "/" + name_of_test;
  std::filesystem::create_directories(folder);
  return folder + "/" + name;
}

}  // namespace dapd
