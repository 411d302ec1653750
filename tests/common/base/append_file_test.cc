#include "common/base/append_file.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class AppendFileTest : public testing::Test {
 protected:
  AppendFileTest() : path_(TempPath("journal")) {}
  std::string Content() const { return ReadFile(path_, 1 << 20).value(); }
  const std::string path_;
};

TEST_F(AppendFileTest, RecordsFollowEachOtherAcrossOpenings) {
  for (const char* record : {"one\n", "two\n"}) {
    auto file = AppendFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append(record).ok());
  }
  EXPECT_EQ(Content(), "one\ntwo\n");
}

TEST_F(AppendFileTest, WhatIsCutOffIsGone) {
  auto file = AppendFile::Open(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append("one\ntorn").ok());
  ASSERT_TRUE(file->Truncate(4).ok());
  ASSERT_TRUE(file->Append("two\n").ok());
  EXPECT_EQ(Content(), "one\ntwo\n");
  EXPECT_EQ(file->size(), 8U);
}

// /dev/full takes no byte; nothing may count as written.
TEST_F(AppendFileTest, AFullDiskIsNamedAndLeavesTheSizeAsItWas) {
  auto file = AppendFile::Open("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status status = file->Append("record");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(file->size(), 0U);
}

TEST_F(AppendFileTest, AFolderThatIsNotThereIsNamed) {
  const auto file = AppendFile::Open(path_ + "/no/such");
  EXPECT_NE(file.status().message().find("no/such"), std::string::npos);
}

}  // namespace
}  // namespace dapd
