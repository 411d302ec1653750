#include "common/metrics/tensorboard_writer.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the records of the only file in `folder`, without their frames, as
// far as the lengths lead.
std::vector<std::string> ReadEvents(const std::string& folder) {
  const std::string path =
      std::filesystem::directory_iterator(folder)->path().string();
  const std::string bytes = ReadFile(path, 1 << 20).value();
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = static_cast<unsigned char>(bytes[at]);
    EXPECT_LE(at + 12 + length + 4, bytes.size()) << "a torn record";
    events.push_back(bytes.substr(at + 12, length));
    at += 12 + length + 4;
  }
  return events;
}

TEST(TensorBoardWriterTest, RecordsAreFramedByTheirLength) {
  const std::string folder = TempPath("folder");
  std::filesystem::create_directories(folder);
  {
    auto writer = TensorBoardWriter::Create(folder);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->AddScalar("loss", 7, 0.25).ok());
  }
  EXPECT_THAT(ReadEvents(folder),
              ElementsAre(HasSubstr("brain.Event:2"), HasSubstr("loss")));
}

// TensorBoard reads the files in the order of their names.
TEST(TensorBoardWriterTest, EachFileOfAFolderComesBehindThoseThatAreThere) {
  const std::string folder = TempPath("folder");
  std::filesystem::create_directories(folder);
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(TensorBoardWriter::Create(folder).ok());
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      const std::string name = file.path().filename();
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  EXPECT_EQ(names.size(), 5U);
  EXPECT_TRUE(std::ranges::is_sorted(names));
}

TEST(TensorBoardWriterTest, ADiskThatWasFullTearsNoRecord) {
  const std::string folder = TempPath("folder");
  std::filesystem::create_directories(folder);
  auto writer = TensorBoardWriter::Create(folder);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ::signal(SIGXFSZ, SIG_IGN);  // EFBIG instead
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit before = limit;
  // A part of the next record fits into the limit.
  limit.rlim_cur = std::filesystem::file_size(
                       std::filesystem::directory_iterator(folder)->path()) +
                   10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status full = writer->AddScalar("lost", 7, 0.25);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(full.message(), HasSubstr("File too large"));
  EXPECT_THAT(ReadEvents(folder), ElementsAre(HasSubstr("brain.Event:2")));
  ASSERT_TRUE(writer->AddScalar("kept", 8, 0.25).ok());
  EXPECT_THAT(ReadEvents(folder),
              ElementsAre(HasSubstr("brain.Event:2"), HasSubstr("kept")));
}

}  // namespace
}  // namespace dapd
