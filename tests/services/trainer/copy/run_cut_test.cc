#include "services/trainer/copy/run_cut.h"

#include <filesystem>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"
#include "tests/services/trainer/copy/run_folder_example.h"

namespace dapd {
namespace {

std::map<std::string, std::string> Contents(const RunCut& cut) {
  std::map<std::string, std::string> contents;
  for (const CutFile& file : cut.files) {
    contents[file.name] = ReadFile(file.path, 1 << 20)
                              .value_or("gone")
                              .substr(0, static_cast<size_t>(file.bytes));
  }
  return contents;
}

TEST(RunCutTest, WhatLaterStepsDoToTheFolderDoesNotReachACut) {
  const std::string folder = TempPath("run");
  SaveStep(folder, 2);
  WriteIn(folder, "samples/step-000003.jsonl", "of a later step");
  WriteIn(folder, ".lock", "");
  const auto cut = CutRun(folder, 2);
  ASSERT_TRUE(cut.ok()) << cut.status();
  const auto before = Contents(*cut);
  SaveStep(folder, 4);
  std::filesystem::remove_all(folder + "/checkpoints/step-000002");
  EXPECT_EQ(Contents(*cut), before);
  EXPECT_EQ(before.size(), 7U);
  EXPECT_EQ(before.at("metrics.jsonl"), "metrics 2\n");
  EXPECT_EQ(before.at("checkpoints/step-000002/state.json"), "state 2");
  EXPECT_FALSE(before.contains("samples/step-000003.jsonl"));
  DropCut(*cut);
  EXPECT_FALSE(FileExists(cut->links));
  EXPECT_EQ(*ReadFile(folder + "/config.yaml", 100), "run: {name: example}\n");
}

TEST(RunCutTest, TwoCutsOfAStepStandApart) {
  const std::string folder = TempPath("run");
  SaveStep(folder, 2);
  const auto one = CutRun(folder, 2);
  WriteIn(folder, "summary.json", "{}");
  const auto two = CutRun(folder, 2);
  ASSERT_TRUE(one.ok() && two.ok());
  DropCut(*one);
  EXPECT_TRUE(Contents(*two).contains("summary.json"));
  DropAllCuts(folder);
  EXPECT_FALSE(FileExists(two->links));
}

TEST(RunCutTest, AStepWithoutACheckpointIsNotCut) {
  const std::string folder = TempPath("run");
  SaveStep(folder, 2);
  EXPECT_TRUE(absl::IsNotFound(CutRun(folder, 3).status()));
}

// A copy would claim to be complete and lack the folder's files.
TEST(RunCutTest, AFolderThatCannotBeListedIsNotTakenForAnEmptyOne) {
  const std::string folder = TempPath("run");
  SaveStep(folder, 2);
  ASSERT_TRUE(CutRun(folder, 2).ok());
  WriteIn(folder, "evaluation", "no folder");
  const absl::Status status = CutRun(folder, 2).status();
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(JoinPath(folder, "evaluation")));
}

}  // namespace
}  // namespace dapd
