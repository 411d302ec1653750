#include "common/config/shipped_configs.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/config/load_config.h"
#include "tests/fakes/loaded_config.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using testing::HasSubstr;

TEST(ShippedConfigsTest, ThoseOfTheRepositoryAreFoundByTheirNames) {
  EXPECT_EQ(ShippedConfigsFolder(), std::string(DAPD_SOURCE_DIR) + "/configs");
  const auto loaded = LoadConfig("laboratory", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.run.name, "laboratory");
}

TEST(ShippedConfigsTest, AFileComesBeforeANameAndAPathIsNoName) {
  const std::string folder = TempPath("shipped");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/small.yaml", "run: {}\n").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/notes.txt", "").ok());
  EXPECT_THAT(ConfigNames(folder), testing::ElementsAre("small"));
  EXPECT_EQ(*FindConfig("small", folder), folder + "/small.yaml");
  EXPECT_EQ(*FindConfig("other/small", folder), "other/small");
  EXPECT_EQ(*FindConfig("small.yaml", folder), "small.yaml");
  EXPECT_EQ(*FindConfig("small", ""), "small");

  const absl::Status unknown = FindConfig("smal", folder).status();
  EXPECT_EQ(ExitCodeOf(unknown), ExitCode::kConfig);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("smal is neither a file nor a configuration of " +
                        folder + ", which has small"));
}

}  // namespace
}  // namespace dapd
