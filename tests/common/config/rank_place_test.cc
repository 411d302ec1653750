#include "common/config/rank_place.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/config/config_text.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<LoadedConfig> LoadWith(
    const std::vector<std::string>& overrides) {
  const std::string path = TempPath("config.yaml");
  EXPECT_TRUE(WriteFileAtomically(path, "model: {path: some/model}\n").ok());
  return LoadConfig(path, overrides);
}

TEST(RankPlaceTest, RanksFollowFromMachines) {
  const auto loaded = LoadWith({"trainer.ranks_per_machine=4",
                                "trainer.machines=3",
                                "trainer.machine=2"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.trainer.ranks, 12);
  EXPECT_EQ(loaded->config.trainer.rank, 8);
  EXPECT_EQ(loaded->origins.at("trainer.ranks"), "trainer.machines");
}

TEST(RankPlaceTest, WithoutThemAProcessIsTheRankThatIsGiven) {
  const auto loaded = LoadWith({"trainer.ranks=4", "trainer.rank=2"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.trainer.ranks, 4);
  EXPECT_EQ(loaded->config.trainer.rank, 2);
}

TEST(RankPlaceTest, WhatARunRecordsLoadsAgain) {
  const auto first =
      LoadWith({"trainer.ranks_per_machine=2", "trainer.machines=2"});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string path = TempPath("recorded.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, DumpConfig(*first)).ok());
  const auto second = LoadConfig(path, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->config.trainer.ranks, 4);
}

TEST(RankPlaceTest, OneRankOfThemIsNoMachine) {
  std::vector<std::string> overrides = {
      "trainer.ranks_per_machine=4", "trainer.machines=2", "trainer.machine=1"};
  for (std::string& setting : SettingsOfRank(8, 5)) {
    overrides.push_back(std::move(setting));
  }
  const auto loaded = LoadWith(overrides);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.trainer.ranks_per_machine, 0);
  EXPECT_EQ(loaded->config.trainer.ranks, 8);
  EXPECT_EQ(loaded->config.trainer.rank, 5);
}

TEST(RankPlaceTest, ContradictionsAreNamed) {
  struct Case {
    std::vector<std::string> overrides;
    std::string message;
  };
  for (const Case& bad : std::vector<Case>{
           {{"trainer.machines=2"}, "trainer.ranks_per_machine, which is 0"},
           {{"trainer.ranks_per_machine=2",
             "trainer.machines=2",
             "trainer.machine=2"},
            "trainer.machine (2) counts from 0 and must be below "
            "trainer.machines (2)"},
           {{"trainer.ranks_per_machine=2",
             "trainer.machines=2",
             "trainer.ranks=3"},
            "trainer.ranks (3) follows from the machines, machine 0 of 2 with "
            "2 ranks each, and would be 4: leave it out"},
           {{"trainer.ranks_per_machine=64"},
            "trainer.ranks (64) is more than"},
       }) {
    const auto loaded = LoadWith(bad.overrides);
    ASSERT_FALSE(loaded.ok());
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(bad.message));
  }
}

}  // namespace
}  // namespace dapd
