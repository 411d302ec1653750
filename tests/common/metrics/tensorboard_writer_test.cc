#include "common/metrics/tensorboard_writer.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

TEST(TensorBoardWriterTest, RecordsAreFramedByTheirLength) {
  const std::string folder = TempPath("folder");
  std::filesystem::create_directories(folder);
  {
    auto writer = TensorBoardWriter::Create(folder);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->AddScalar("loss", 7, 0.25).ok());
  }
  const std::string path =
      std::filesystem::directory_iterator(folder)->path().string();
  const std::string bytes = ReadFile(path, 1 << 20).value();
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = static_cast<unsigned char>(bytes[at]);
    events.push_back(bytes.substr(at + 12, length));
    at += 12 + length + 4;
  }
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0], testing::HasSubstr("brain.Event:2"));
  EXPECT_THAT(events[1], testing::HasSubstr("loss"));
}

}  // namespace
}  // namespace dapd
