#include "common/base/files.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class FilesTest : public testing::Test {
 protected:
  FilesTest() : folder_(TempPath("folder")) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FilesTest() override { std::filesystem::remove_all(folder_); }

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
  // /dev/full answers every write with ENOSPC; the rename is never reached.
  std::filesystem::create_symlink(
      "/dev/full",
      JoinPath(folder_, "a") + ".tmp-" + std::to_string(::getpid()));
  const absl::Status status =
      WriteFileAtomically(JoinPath(folder_, "a"), "bytes");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(FileExists(JoinPath(folder_, "a")));
}

TEST_F(FilesTest, AFileOfSomebodyElseNamesWhoMayNotReadItAndWhatToDo) {
  const absl::Status status = FileError("open", "a/b", EACCES);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(),
            "cannot open a/b: Permission denied; user " +
                std::to_string(::geteuid()) +
                " has no right to it: give it to that user with chown or "
                "chmod, and the folders above it, too");
  // Its reason is another.
  EXPECT_EQ(FileError("create", "a/b", EROFS).message(),
            "cannot create a/b: Read-only file system");
}

TEST_F(FilesTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadFile(JoinPath(folder_, "none"), 1).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace dapd
