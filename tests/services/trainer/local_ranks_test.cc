#include "services/trainer/local_ranks.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns machine 1 of 2 with 3 ranks each, as LoadConfig() returns it.
Config SecondMachine() {
  Config config;
  config.model.device = DeviceChoice::kAuto;
  config.run.output_dir = TempPath("runs");
  config.run.name = "mine";
  config.trainer.listen = "0.0.0.0:7003";
  config.metrics.trainer_listen = "[::]:9103";
  config.trainer.ranks_per_machine = 3;
  config.trainer.machines = 2;
  config.trainer.machine = 1;
  config.trainer.ranks = 6;
  config.trainer.rank = 3;
  return config;
}

TEST(LocalRanksTest, EachRankHasItsNumberItsPortsAndItsGpu) {
  const auto ranks = PlanLocalRanks(SecondMachine(), {"0", "2", "GPU-x"});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ASSERT_THAT(*ranks, SizeIs(3));
  EXPECT_EQ(ranks->at(0).rank, 3);
  EXPECT_THAT(ranks->at(0).overrides,
              Contains("trainer.listen=\"0.0.0.0:7003\""));
  const LocalRank& last = ranks->at(2);
  EXPECT_EQ(last.rank, 5);
  for (const char* setting : {"trainer.ranks_per_machine=0",
                              "trainer.ranks=6",
                              "trainer.rank=5",
                              "trainer.listen=\"0.0.0.0:7023\"",
                              "metrics.trainer_listen=\"[::]:9123\""}) {
    EXPECT_THAT(last.overrides, Contains(setting));
  }
  EXPECT_THAT(last.environment, ElementsAre("CUDA_VISIBLE_DEVICES=GPU-x"));
}

TEST(LocalRanksTest, WithoutGpusTheySeeNoneAndPortsThatNobodyChoseStayFree) {
  Config config = SecondMachine();
  config.trainer.listen = "127.0.0.1:0";
  config.metrics.trainer_listen = "";
  const auto ranks = PlanLocalRanks(config, {});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  EXPECT_THAT(ranks->at(2).environment, IsEmpty());
  EXPECT_THAT(ranks->at(2).overrides,
              Contains("trainer.listen=\"127.0.0.1:0\""));
  EXPECT_THAT(ranks->at(2).overrides, Contains("metrics.trainer_listen=\"\""));
}

TEST(LocalRanksTest, TheyShareTheThreadsThatTheContainerMayUse) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_THAT(PlanLocalRanks(SecondMachine(), {})->at(1).overrides,
              Contains("run.num_threads=2"));
  ::setenv("OMP_NUM_THREADS", "1", 1);
  EXPECT_THAT(PlanLocalRanks(SecondMachine(), {})->at(1).overrides,
              Contains("run.num_threads=1"));
  Config config = SecondMachine();
  config.run.num_threads = 5;
  const auto given = PlanLocalRanks(config, {});
  EXPECT_THAT(given->at(1).overrides,
              testing::Not(Contains(HasSubstr("run.num_threads"))));
}

TEST(LocalRanksTest, FewerGpusThanRanksAreRefused) {
  for (const std::vector<std::string>& gpus :
       {std::vector<std::string>{"0", "1"}, std::vector<std::string>{}}) {
    Config config = SecondMachine();
    config.model.device = DeviceChoice::kCuda;
    const auto ranks = PlanLocalRanks(config, gpus);
    EXPECT_EQ(ExitCodeOf(ranks.status()), ExitCode::kConfig);
    EXPECT_THAT(std::string(ranks.status().message()),
                HasSubstr("trainer.ranks_per_machine is 3, but this machine"));
  }
}

TEST(LocalRanksTest, OfAFinishedRunAMachineStartsOneRank) {
  Config config = SecondMachine();
  const std::string folder = JoinPath(config.run.output_dir, config.run.name);
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(
      WriteFileAtomically(JoinPath(folder, "summary.json"), R"({"steps": 200})")
          .ok());
  const auto ranks = PlanLocalRanks(config, {});
  ASSERT_THAT(*ranks, SizeIs(1));
  EXPECT_EQ(ranks->front().rank, config.trainer.rank);
  config.trainer.steps = 201;
  EXPECT_THAT(*PlanLocalRanks(config, {}), SizeIs(3));
}

TEST(LocalRanksTest, TheCodeThatSaysMostCounts) {
  EXPECT_EQ(CodeOfRanks({}), 0);
  EXPECT_EQ(CodeOfRanks({0, 0}), 0);
  EXPECT_EQ(CodeOfRanks({75, 4, 75}), 4);
  EXPECT_EQ(CodeOfRanks({137, 75}), 75) << "who was killed says nothing";
  EXPECT_EQ(CodeOfRanks({75, 139, 75}), 139) << "who crashed does";
  EXPECT_EQ(CodeOfRanks({75, 130}), 75);
  EXPECT_EQ(CodeOfRanks({130, 0}), 130);
  EXPECT_EQ(CodeOfRanks({5, 6}), 5) << "the first";
}

}  // namespace
}  // namespace dapd
