#include "common/base/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class FileLockTest : public testing::Test {
 protected:
  FileLockTest() { EXPECT_TRUE(WriteFileAtomically(path_, "x").ok()); }

  int Open() const { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); }

  const std::string path_ = TempPath("file");
};

TEST_F(FileLockTest, ALockIsSeenAsLongAsItIsHeld) {
  EXPECT_FALSE(*IsLocked(path_));
  const int holder = Open();
  ASSERT_TRUE(TryLock(holder));
  EXPECT_TRUE(*IsLocked(path_));
  const int other = Open();
  EXPECT_FALSE(TryLock(other));
  ::close(holder);
  EXPECT_FALSE(*IsLocked(path_));
  EXPECT_TRUE(TryLock(other));
  ::close(other);
}

TEST_F(FileLockTest, AMissingFileIsLockedByNobody) {
  EXPECT_FALSE(*IsLocked(path_ + ".none"));
}

}  // namespace
}  // namespace dapd
