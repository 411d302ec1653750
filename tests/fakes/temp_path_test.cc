#include "tests/fakes/temp_path.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(TempPathTest, NothingIsThereBeforeATestMakesIt) {
  const std::string path = TempPath("file");
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "left behind";
  EXPECT_TRUE(std::filesystem::exists(TempPath("file")));
}

TEST(TempPathTest, NorWhenTestsAreRepeated) {
  const std::string repeated =
      "'" + std::filesystem::read_symlink("/proc/self/exe").string() +
      "' --gtest_filter=TempPathTest.NothingIsThereBeforeATestMakesIt"
      " --gtest_repeat=3 --gtest_output= --gtest_brief=1";
  EXPECT_EQ(std::system(repeated.c_str()), 0);
}

}  // namespace
}  // namespace dapd
