#include "common/rpc/pool/address_file.h"

#include <sys/stat.h>

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AddressFileTest : public testing::Test {
 protected:
  AddressFileTest() : path_(TempPath("addresses.txt")) {}

  void Write(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(path_, text).ok());
  }
  // Returns the log of `file` while it is read.
  std::string LoggedBy(AddressFile& file) {
    testing::internal::CaptureStderr();
    (void)file.Read();
    return testing::internal::GetCapturedStderr();
  }

  const std::string path_;
};

TEST_F(AddressFileTest, CommentsBlankLinesAndRepetitionsCountForNothing) {
  const auto read = ParseAddressFile(
      "f",
      "# rollouts of job 7\n\n  node-1:7001  # the first\r\n[::1]:7002\n"
      "\t\nnode-1:7001\nnode-2:7001");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(*read, ElementsAre("node-1:7001", "[::1]:7002", "node-2:7001"));
}

TEST_F(AddressFileTest, AFileWithoutAddressesIsAnEmptyList) {
  for (const char* text : {"", "\n", "# nobody\n"}) {
    const auto read = ParseAddressFile("f", text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(*read, IsEmpty());
  }
}

TEST_F(AddressFileTest, AMistakeIsNamedWithFileAndLine) {
  for (const std::string& wrong : {std::string("node-2"),
                                   std::string("node-2:"),
                                   std::string("node-2:70O1"),
                                   std::string("node-2:0"),
                                   std::string("node-2:65536"),
                                   std::string("node 2:7001"),
                                   std::string("node-2:7001 node-3:7001"),
                                   std::string("node-2:7001,node-3:7001"),
                                   std::string("file:///other"),
                                   std::string("n\xc3\xb6"
                                               "de:7001"),
                                   std::string(5000, 'x') + ":7001"}) {
    const auto read =
        ParseAddressFile("/shared/rollouts", "node-1:7001\n\n" + wrong + "\n");
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(read.status().message());
    EXPECT_THAT(message, HasSubstr("/shared/rollouts:3: "));
    EXPECT_LT(message.size(), 400u);
  }
}

TEST_F(AddressFileTest, MoreWorkersThanATrainerCanHaveAreAMistake) {
  std::string text;
  for (int i = 1; i <= 1025; ++i) {
    text += "node:" + std::to_string(i) + "\n";
  }
  EXPECT_THAT(std::string(ParseAddressFile("f", text).status().message()),
              HasSubstr("f:1025: more than 1024 workers"));
}

TEST_F(AddressFileTest, AFileThatIsNotThereYetIsReadWhenItIs) {
  AddressFile file(path_);
  EXPECT_EQ(file.Read().status().code(), absl::StatusCode::kNotFound);
  Write("node-1:7001\n");
  EXPECT_THAT(*file.Read(), ElementsAre("node-1:7001"));
  Write("node-1:7001\nnode-2:7001\n");
  EXPECT_THAT(*file.Read(), ElementsAre("node-1:7001", "node-2:7001"));
  Write("node-2:7001\n");
  EXPECT_THAT(*file.Read(), ElementsAre("node-2:7001"));
}

TEST_F(AddressFileTest, AMistakeKeepsTheLastGoodListAndIsWarnedAboutOnce) {
  AddressFile file(path_);
  Write("node-1:7001\n");
  ASSERT_TRUE(file.Read().ok());
  Write("node-1:7001\nnode-2\n");
  const std::string first = LoggedBy(file);
  EXPECT_THAT(first, HasSubstr(path_ + ":2: "));
  EXPECT_THAT(first, HasSubstr("stay in use until it is fixed"));
  EXPECT_EQ(LoggedBy(file), "");
  EXPECT_THAT(*file.Read(), ElementsAre("node-1:7001"));
  // A different mistake is logged, and so is an old mistake after a good file.
  Write("x\n");
  EXPECT_THAT(LoggedBy(file), HasSubstr(path_ + ":1: "));
  Write("node-2:7001\n");
  EXPECT_THAT(*file.Read(), ElementsAre("node-2:7001"));
  Write("x\n");
  EXPECT_THAT(LoggedBy(file), HasSubstr(path_ + ":1: "));
  EXPECT_THAT(*file.Read(), ElementsAre("node-2:7001"));
}

TEST_F(AddressFileTest, WhereNothingWasEverGoodAMistakeIsAnError) {
  AddressFile file(path_);
  Write("x\n");
  EXPECT_THAT(LoggedBy(file), HasSubstr("read again until it names workers"));
  EXPECT_EQ(file.Read().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AddressFileTest, AFileThatVanishesLeavesItsWorkers) {
  AddressFile file(path_);
  Write("node-1:7001\n");
  ASSERT_TRUE(file.Read().ok());
  std::remove(path_.c_str());
  EXPECT_THAT(LoggedBy(file), HasSubstr("No such file"));
  EXPECT_THAT(*file.Read(), ElementsAre("node-1:7001"));
  EXPECT_EQ(LoggedBy(file), "");
}

TEST_F(AddressFileTest, AFileThatIsTooLargeIsNotRead) {
  Write(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(std::string(AddressFile(path_).Read().status().message()),
              HasSubstr("at most 1048576"));
}

// Opening a pipe would block until somebody writes.
TEST_F(AddressFileTest, APipeIsRefused) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(std::string(AddressFile(path_).Read().status().message()),
              HasSubstr("is not a file"));
}

TEST_F(AddressFileTest, WhatTheLogQuotesCannotForgeALine) {
  AddressFile file(path_);
  Write("\x1b[2Jnode\n");
  EXPECT_THAT(LoggedBy(file), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace dapd
