#include "common/security/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/no_descriptors.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string Write(const std::string& bytes,
                  mode_t mode,
                  const std::string& name = "secret") {
  const std::string path = TempPath(name);
  EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

std::string Message(const absl::Status& status) {
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  return std::string(status.message());
}

TEST(SecretFileTest, AFileOfTheOwnerAloneIsRead) {
  for (const mode_t mode : {0600, 0400}) {
    EXPECT_EQ(ReadSecretFile("key", Write("abc\n", mode)).value(), "abc\n");
  }
}

TEST(SecretFileTest, AFileThatOthersCanReadOrChangeIsRefused) {
  for (const mode_t mode : {0640, 0604, 0644, 0666, 0620, 0602, 0660, 0610}) {
    const std::string message =
        Message(ReadSecretFile("the.key", Write("abc", mode)).status());
    EXPECT_THAT(message, HasSubstr("the.key")) << mode;
    EXPECT_THAT(message, HasSubstr("chmod 600")) << mode;
    EXPECT_THAT(message, Not(HasSubstr("abc")));
  }
}

// Kubernetes mounts a secret like this: root owns it, the container's group may
// read it.
TEST(SecretFileTest, AFileOfRootMayBeReadableByAGroupOfThisUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make root's file";
  const std::string path = Write("abc", 0440);
  const std::string other = Write("abc", 0600, "other");
  EXPECT_EQ(::chown(path.c_str(), 0, 4711), 0);
  EXPECT_EQ(::chown(other.c_str(), 4712, 4711), 0);
  EXPECT_THAT(Message(ReadSecretFile("key", other).status()),
              HasSubstr("belongs to user 4712"));
  ASSERT_EQ(::setegid(4711), 0);
  ASSERT_EQ(::seteuid(4711), 0);
  const auto read = ReadSecretFile("key", path);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_EQ(::setegid(0), 0);
  EXPECT_EQ(read.value_or("refused"), "abc") << read.status();
}

TEST(SecretFileTest, WhatIsNoSmallRegularFileIsRefused) {
  EXPECT_THAT(Message(ReadSecretFile("key", testing::TempDir()).status()),
              HasSubstr("regular"));
  const std::string fifo = TempPath("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(Message(ReadSecretFile("key", fifo).status()),
              HasSubstr("regular"));
  const std::string large = Write(std::string(65537, 'x'), 0600);
  EXPECT_THAT(Message(ReadSecretFile("key", large).status()),
              HasSubstr("65536"));
  EXPECT_TRUE(ReadSecretFile("key", Write(std::string(65536, 'x'), 0600)).ok());
}

TEST(SecretFileTest, AValueThatIsTheSecretItselfIsNotRepeated) {
  const std::string canary = "canary-0123456789abcdef0123456789abcdef";
  EXPECT_THAT(Message(ReadSecretFile("key", canary).status()),
              Not(HasSubstr(canary)));
}

// A Get() too early to see the change only makes the wait longer.
std::string WaitFor(SecretFile& file, const std::string& expected) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (*file.Get() != expected && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  return *file.Get();
}

TEST(SecretFileTest, AChangeIsSeenAndAnUnreadableOneIsNot) {
  const std::string path = Write("one", 0600);
  const auto file = SecretFile::Open("key", path).value();
  EXPECT_EQ(*file->Get(), "one");
  Write("two", 0600);
  EXPECT_EQ(WaitFor(*file, "two"), "two");

  testing::internal::CaptureStderr();
  Write("three", 0644);
  std::string logged;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (logged.empty() && absl::Now() < deadline) {
    EXPECT_EQ(*file->Get(), "two");
    logged = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    absl::SleepFor(absl::Milliseconds(20));
  }
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, HasSubstr("stays in effect"));
  EXPECT_THAT(logged, Not(HasSubstr("three")));
}

TEST(SecretFileTest,
     AChangeThatCannotBeReadForAMomentIsReadLaterAndLoggedOnce) {
  const std::string path = Write("one", 0600);
  const auto file = SecretFile::Open("key", path).value();
  Write("two", 0600);
  testing::internal::CaptureStderr();
  // The file is looked at a few times; only the first failure is logged.
  const absl::Time deadline = absl::Now() + absl::Milliseconds(3500);
  while (absl::Now() < deadline) {
    const NoDescriptors none;
    EXPECT_EQ(*file->Get(), "one");
    absl::SleepFor(absl::Milliseconds(20));
  }
  const std::string logged = testing::internal::GetCapturedStderr();
  const std::vector<std::string> around =
      absl::StrSplit(logged, "Too many open files");
  EXPECT_THAT(around, SizeIs(2)) << logged;
  EXPECT_EQ(WaitFor(*file, "two"), "two");
}

}  // namespace
}  // namespace dapd
