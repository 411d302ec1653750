#include "common/base/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class FileLockTest : public testing::Test {
 protected:
  FileLockTest() { EXPECT_TRUE(WriteFileAtomically(path_, "x").ok()); }

  int Open() const { return ::open(path_.c_str(), O_RDWR | O_CLOEXEC); }

  const std::string path_ = TempPath("file");
};

TEST_F(FileLockTest, ALockIsSeenAsLongAsItIsHeld) {
  EXPECT_FALSE(*IsLocked(path_));
  const int holder = Open();
  ASSERT_TRUE(*TryLock(holder, path_));
  EXPECT_TRUE(*IsLocked(path_));
  const int other = Open();
  EXPECT_FALSE(*TryLock(other, path_));
  ::close(holder);
  EXPECT_FALSE(*IsLocked(path_));
  EXPECT_TRUE(*TryLock(other, path_));
  ::close(other);
}

TEST_F(FileLockTest, AMissingFileIsLockedByNobody) {
  EXPECT_FALSE(*IsLocked(path_ + ".none"));
}

// A file system without locks answers ENOLCK or ENOTSUP; a descriptor that
// cannot be locked gives EBADF.
TEST_F(FileLockTest, ALockThatCannotBeHadIsNoOtherProcess) {
  const absl::Status status = TryLock(-1, path_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("cannot lock " + path_ +
                                 ": Bad file descriptor; this file system "
                                 "cannot lock files"));
}

TEST_F(FileLockTest, AFolderIsTriedAndLeftAsItWas) {
  const std::string folder = TempPath("folder");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  EXPECT_TRUE(CheckLocks(folder).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(absl::IsNotFound(CheckLocks(folder + "/none")));
}

}  // namespace
}  // namespace dapd
