#include "services/cli/output_text.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/config/run_settings.h"
#include "services/trainer/record/run_identity.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(OutputWarningsTest, FoldersThatCanBeMadeAreNotMade) {
  Config config;
  config.run.name = "mine";
  config.run.output_dir = TempPath("deep/runs");
  config.checkpoint.copy_to = TempPath("copies");
  EXPECT_THAT(OutputWarnings(config, ModelConfig()), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(TempPath("deep")));
  config.run.output_dir = "runs";
  config.checkpoint.copy_to = "s3://bucket/runs";
  EXPECT_THAT(OutputWarnings(config, ModelConfig()), IsEmpty());
}

TEST(OutputWarningsTest, FoldersThatCannotBeMadeAreNamedWithTheReason) {
  Config config;
  config.run.name = "mine";
  const std::string file = TempPath("file");
  ASSERT_TRUE(WriteFileAtomically(file, "x").ok());
  config.run.output_dir = JoinPath(file, "runs");
  config.checkpoint.copy_to = file;
  EXPECT_THAT(OutputWarnings(config, ModelConfig()),
              ElementsAre(HasSubstr("run.output_dir: " + file + "/runs/mine"),
                          HasSubstr("checkpoint.copy_to: " + file + "/mine")));
  EXPECT_THAT(OutputWarnings(config, ModelConfig())[0],
              HasSubstr("Not a directory"));
}

TEST(OutputWarningsTest, AFileSystemWithoutRoomForTheRunIsNamed) {
  Config config;
  config.run.output_dir = TempPath("runs");
  ModelConfig model;
  model.num_layers = 1000;
  model.hidden_size = int64_t{1} << 22;
  config.lora.targets = {"gate_proj"};
  config.lora.rank = 4096;
  EXPECT_THAT(
      OutputWarnings(config, model),
      ElementsAre(AllOf(HasSubstr("run.output_dir: the run's adapters and"),
                        HasSubstr("MiB left; free some space"))));
}

TEST(OtherRunWarningTest, WhatDiffersFromTheRunInTheFolderIsNamed) {
  Config config;
  config.run.name = "mine";
  config.run.output_dir = TempPath("runs");
  EXPECT_EQ(OtherRunWarning(config, "digest"), "");
  const std::string folder = JoinPath(config.run.output_dir, "mine");
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(WriteIdentity(folder,
                            {.base_model_path = "/models/base",
                             .base_digest = "not read for this",
                             .data_digest = "digest",
                             .settings = ResultSettings(config)})
                  .ok());
  EXPECT_EQ(OtherRunWarning(config, "digest"), "");
  EXPECT_THAT(OtherRunWarning(config, "another"),
              HasSubstr("data.path holds different problems"));
  config.trainer.learning_rate = 3e-4;
  EXPECT_THAT(OtherRunWarning(config, "digest"),
              AllOf(HasSubstr(folder + " belongs to another run"),
                    HasSubstr("trainer.learning_rate: was"),
                    Not(HasSubstr("the base model"))));
}

}  // namespace
}  // namespace dapd
