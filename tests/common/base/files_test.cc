#include "common/base/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class FilesTest : public testing::Test {
 protected:
  FilesTest() : folder_(TempPath("folder")) {
    std::filesystem::create_directories(folder_);
  }

  int NumFiles() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(folder_)) {
      ++count;
    }
    return count;
  }

  const std::string folder_;
};

TEST_F(FilesTest, ANewOutputIsNothingOrAnEmptyFolder) {
  EXPECT_TRUE(CheckNewOutput(folder_).ok());
  EXPECT_TRUE(CheckNewOutput(folder_ + "/").ok());
  EXPECT_TRUE(CheckNewOutput(JoinPath(folder_, "none")).ok());
  const std::string file = JoinPath(folder_, "a");
  ASSERT_TRUE(WriteFileAtomically(file, "x").ok());
  const std::string link = JoinPath(folder_, "link");
  std::filesystem::create_symlink("nowhere", link);
  for (const std::string& taken : {folder_, file, link}) {
    const absl::Status status = CheckNewOutput(taken);
    EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
    EXPECT_EQ(status.message().rfind(taken + " already exists", 0), 0U)
        << status;
  }
}

TEST_F(FilesTest, AnOutputIsNotWhatIsReadByAnyName) {
  const std::string input = JoinPath(folder_, "a");
  ASSERT_TRUE(WriteFileAtomically(input, "x").ok());
  const std::string link = JoinPath(folder_, "link");
  std::filesystem::create_symlink("a", link);
  for (const std::string& output : {input, folder_ + "/./a", link}) {
    const absl::Status status = CheckOutputSpares(input, output);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
    EXPECT_TRUE(absl::StartsWith(status.message(), output)) << status;
  }
  const std::string other = JoinPath(folder_, "b");
  EXPECT_TRUE(CheckOutputSpares(input, other).ok());
  EXPECT_TRUE(CheckOutputSpares("", input).ok());
  ASSERT_TRUE(WriteFileAtomically(other, "x").ok());
  EXPECT_TRUE(CheckOutputSpares(input, other).ok());
  EXPECT_TRUE(CheckOutputSpares("/dev/null", "/dev/null").ok());
}

TEST_F(FilesTest, WhatIsWrittenIsRead) {
  const std::string path = JoinPath(folder_, "a");
  const std::string bytes(3 << 20, 'x');
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_EQ(ReadFile(path, 4 << 20).value(), bytes);
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(FilesTest, AFileOverTheLimitIsRefusedWithItsSize) {
  const std::string path = JoinPath(folder_, "a");
  ASSERT_TRUE(WriteFileAtomically(path, "12345").ok());
  const absl::Status status = ReadFile(path, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("5 bytes"), absl::string_view::npos);
}

TEST_F(FilesTest, AnUncommittedWriterLeavesTheOldFileAndNoTrace) {
  const std::string path = JoinPath(folder_, "a");
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  {
    auto writer = AtomicFileWriter::Open(path);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append("new").ok());
  }
  EXPECT_EQ(ReadFile(path, 100).value(), "old");
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(FilesTest, AFullDiskIsResourceExhausted) {
  // /dev/full answers every write with ENOSPC.
  const absl::Status status = WriteFileAtomically("/dev/full", "bytes");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST_F(FilesTest, AWriteThatFailsLeavesTheOldFileAndNoTrace) {
  const std::string path = JoinPath(folder_, "a");
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  ::signal(SIGXFSZ, SIG_IGN);  // EFBIG instead
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = WriteFileAtomically(path, "new");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "ulimit -f")) << status;
  EXPECT_EQ(ReadFile(path, 100).value(), "old");
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(FilesTest, WhatStandsInTheTemporaryFilesPlaceIsNotWrittenInto) {
  const std::string path = JoinPath(folder_, "a");
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  const std::string other = JoinPath(folder_, "other");
  ASSERT_TRUE(WriteFileAtomically(other, "kept").ok());
  std::filesystem::create_symlink(other, temporary);
  ASSERT_TRUE(WriteFileAtomically(path, "new").ok());
  EXPECT_FALSE(std::filesystem::is_symlink(path));
  EXPECT_EQ(ReadFile(path, 100).value(), "new");
  EXPECT_EQ(ReadFile(other, 100).value(), "kept");
  std::filesystem::create_hard_link(other, temporary);
  ASSERT_TRUE(WriteFileAtomically(path, "newer").ok());
  EXPECT_EQ(ReadFile(path, 100).value(), "newer");
  EXPECT_EQ(ReadFile(other, 100).value(), "kept");
  EXPECT_EQ(NumFiles(), 2);
}

TEST_F(FilesTest, WhatAKilledProcessWroteAsideCanBeRemoved) {
  const pid_t killed = ::fork();
  if (killed == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(killed, nullptr, 0), killed);
  const std::string gone = absl::StrCat(".tmp-", killed);
  const std::string alive = absl::StrCat("b.tmp-", ::getppid());
  const std::vector<std::string> kept = {
      "a", "b.tmp", "b.tmp-", "b.tmp-7x", "b.tmp-0", alive};
  for (const std::string& name : kept) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(folder_, name), "bytes").ok());
  }
  for (const std::string& name : {absl::StrCat("a", gone),
                                  absl::StrCat("a.tmp-b", gone),
                                  absl::StrCat("a.tmp-", ::getpid())}) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(folder_, name), "half").ok());
  }
  ASSERT_TRUE(MakeDirectories(JoinPath(folder_, "c" + gone + "/d")).ok());
  RemoveTemporaries(folder_);
  RemoveTemporaries(JoinPath(folder_, "missing"));
  for (const std::string& name : kept) {
    EXPECT_TRUE(FileExists(JoinPath(folder_, name))) << name;
  }
  EXPECT_EQ(NumFiles(), 6);
}

TEST_F(FilesTest, AFolderInAFilesPlaceIsRefusedBeforeAnythingIsWritten) {
  const auto writer = AtomicFileWriter::Open(folder_);
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kInvalidArgument)
      << writer.status();
  EXPECT_FALSE(FileExists(folder_ + ".tmp-" + std::to_string(::getpid())));
  // A file below a file and a file without a name are impossible, too.
  const std::string path = JoinPath(folder_, "a");
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  for (const std::string& wrong :
       {path + "/b", folder_ + "/" + std::string(300, 'x'), std::string()}) {
    EXPECT_EQ(WriteFileAtomically(wrong, "new").code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
    if (wrong.size() < 256) {
      EXPECT_EQ(MakeDirectories(wrong).code(),
                absl::StatusCode::kInvalidArgument)
          << wrong;
    }
  }
}

TEST_F(FilesTest, WhatCannotBeWrittenIsFoundOutBeforeAndLeavesNothing) {
  const std::string path = JoinPath(folder_, "a");
  EXPECT_TRUE(CheckWritable(path).ok());
  EXPECT_EQ(NumFiles(), 0);
  EXPECT_EQ(CheckWritable(path + "/b").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckWritable(folder_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckWritable("/dev/null").ok());
}

TEST_F(FilesTest, APipeIsWrittenIntoAndStays) {
  const std::string path = JoinPath(folder_, "pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFileAtomically(path, "bytes").ok());
  char read[16] = {};
  EXPECT_EQ(::read(reader, read, sizeof(read)), 5);
  ::close(reader);
  EXPECT_STREQ(read, "bytes");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(FilesTest, ADeviceBehindALinkIsWrittenIntoAndStays) {
  const std::string path = JoinPath(folder_, "link");
  std::filesystem::create_symlink("/dev/null", path);
  EXPECT_TRUE(WriteFileAtomically(path, std::string(3 << 20, 'x')).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/full", path);
  EXPECT_EQ(WriteFileAtomically(path, "bytes").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(std::filesystem::is_symlink(path));
}

TEST_F(FilesTest, AFileOfSomebodyElseNamesWhoMayNotReadItAndWhatToDo) {
  const absl::Status status = FileError("open", "a/b", EACCES);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(),
            "cannot open a/b: Permission denied; user " +
                std::to_string(::geteuid()) +
                " lacks the permission: grant it with chown or chmod, on the "
                "folders above as well");
  // A read-only file system is no matter of permissions.
  EXPECT_EQ(FileError("create", "a/b", EROFS).message(),
            "cannot create a/b: Read-only file system");
}

TEST_F(FilesTest, ALinkToNothingIsNotPassedOverAsMissing) {
  const std::string path = JoinPath(folder_, "link");
  EXPECT_FALSE(FileExists(path));
  std::filesystem::create_symlink("nowhere", path);
  EXPECT_TRUE(FileExists(path));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("link", path);
  EXPECT_TRUE(FileExists(path));
}

TEST_F(FilesTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadFile(JoinPath(folder_, "none"), 1).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace dapd
