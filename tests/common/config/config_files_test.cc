#include "common/config/config_files.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/config/load_config.h"
#include "tests/fakes/loaded_config.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using testing::HasSubstr;

TEST(ConfigFilesTest, AFileSaysWhatDiffersFromTheOneThatItExtends) {
  const std::string folder = TempPath("extends");
  ASSERT_TRUE(MakeDirectories(folder + "/sub").ok());
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder + "/" + name, text).ok());
  };
  write("base.yaml",
        "model: {path: m}\ntrainer:\n  steps: 7\n  batch_size: 4\n");
  write("middle.yaml", "extends: base.yaml\ntrainer: {batch_size: 5}\n");
  write("sub/top.yaml", "extends: ../middle.yaml\nrun: {name: top}\n");
  const auto loaded =
      LoadConfig(folder + "/sub/top.yaml", {"trainer.micro_batch_size=1"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.trainer.steps, 7);
  EXPECT_EQ(loaded->config.trainer.batch_size, 5);
  EXPECT_EQ(loaded->origins.at("trainer.steps"), "base.yaml:3");
  EXPECT_EQ(loaded->origins.at("trainer.batch_size"), "middle.yaml:2");
  EXPECT_EQ(loaded->origins.at("run.name"), "file:2");

  write("base.yaml", "trainer:\n  step: 7\n");
  EXPECT_THAT(Message(LoadConfig(folder + "/sub/top.yaml", {})),
              HasSubstr("base.yaml:2: unknown key trainer.step"));
  write("base.yaml", "extends: sub/top.yaml\n");
  EXPECT_THAT(Message(LoadConfig(folder + "/sub/top.yaml", {})),
              HasSubstr("or itself"));
  write("base.yaml", "extends: [a]\n");
  EXPECT_THAT(Message(LoadConfig(folder + "/sub/top.yaml", {})),
              HasSubstr("base.yaml: extends: the path"));
  write("base.yaml", "extends: missing.yaml\n");
  EXPECT_THAT(Message(LoadConfig(folder + "/sub/top.yaml", {})),
              HasSubstr("missing.yaml"));
}

TEST(ConfigFilesTest, TheOuterFileCountsHoweverManyItExtends) {
  const std::string folder = TempPath("extends_many");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  for (int i = 0; i <= 8; ++i) {
    const std::string path = absl::StrCat(folder, "/", i, ".yaml");
    ASSERT_TRUE(
        WriteFileAtomically(
            path,
            absl::StrCat(i == 0 ? "model: {path: m}\ndata: {path: d}\n"
                                : absl::StrCat("extends: ", i - 1, ".yaml\n"),
                         "trainer: {steps: ",
                         i + 1,
                         "}\n"))
            .ok());
    const auto loaded = LoadConfig(path, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->config.trainer.steps, i + 1);
  }
}

}  // namespace
}  // namespace dapd
