#include "common/model/spec/machine_split.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/visible_gpus.h"
#include "common/config/config_text.h"
#include "common/config/run_folder.h"
#include "common/model/spec/role_split.h"
#include "tests/fakes/model_shapes.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns a machine with H100s, or with cards of another size.
GpuReport Machine(size_t gpus, double gib = 79.2) {
  GpuReport report;
  report.gpus.assign(gpus,
                     {.name = "NVIDIA H100",
                      .uuid = "GPU-1",
                      .major = 9,
                      .total_bytes = static_cast<int64_t>(gib * (1 << 30))});
  return report;
}

class MachineSplitTest : public testing::Test {
 protected:
  MachineSplitTest() { ::unsetenv(kVisibleGpusVariable); }
  ~MachineSplitTest() override {
    ::unsetenv(kVisibleGpusVariable);
    ::unsetenv("DAPD_TRAINER__RANKS");
  }

  static LoadedConfig Load(const std::vector<std::string>& settings) {
    const std::string path = TempPath("split.yaml");
    EXPECT_TRUE(
        WriteFileAtomically(path, "model: {path: some/model, device: cuda}\n")
            .ok());
    auto loaded = LoadConfig(path, settings);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *loaded;
  }

  static MachineSplit Split(const std::vector<std::string>& settings,
                            const GpuReport& report,
                            const std::optional<Config>& begun = {}) {
    auto split = SplitMachine(Load(settings), begun, FourBillion(), report);
    EXPECT_TRUE(split.ok()) << split.status();
    return split.ok() ? *std::move(split) : MachineSplit();
  }
};

TEST_F(MachineSplitTest, AllGpusOfAMachineAreUsed) {
  const MachineSplit split = Split({}, Machine(8));
  EXPECT_THAT(split.overrides,
              ElementsAre("trainer.ranks=4", "run.teacher_workers=3"));
  EXPECT_EQ(split.text,
            "8 GPUs: 4 trainer ranks on 0, 1, 2, 3; 1 rollout worker on 4; 3 "
            "teachers on 5, 6, 7");
  EXPECT_THAT(split.warnings, IsEmpty());
  EXPECT_EQ(split.config.trainer.ranks, 4);
  EXPECT_EQ(split.config.run.teacher_workers, 3);
}

TEST_F(MachineSplitTest, AWorkerOfAFurtherTeacherTakesAGpuBeforehand) {
  const std::vector<std::string> settings = {
      "objective.preset=opsd",
      "objective.teacher_weights=big",
      "teachers=[{name: big, path: m, workers: 2}]"};
  FurtherTeacher big{.settings = Load(settings).config.teachers[0],
                     .model = FourBillion()};
  const auto split =
      SplitMachine(Load(settings), {}, FourBillion(), Machine(8), {big});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(SplitOf(split->config).NumDevices(), 6);
  EXPECT_THAT(split->text,
              HasSubstr("; teacher-big-0 on 6; teacher-big-1 on 7"));
}

// `dapd run` loads the overrides again, and so does a run that goes on.
TEST_F(MachineSplitTest, TheOverridesMakeTheSplitsConfiguration) {
  const MachineSplit split = Split({"rollout.tensor_parallel=2"}, Machine(8));
  const Config config =
      Load({split.overrides.begin(), split.overrides.end()}).config;
  EXPECT_EQ(config.trainer.ranks, split.config.trainer.ranks);
  EXPECT_EQ(config.run.teacher_workers, split.config.run.teacher_workers);
  EXPECT_THAT(split.text, HasSubstr("1 rollout worker of 2 GPUs on 4, 5"));
}

TEST_F(MachineSplitTest, OneGpuOrTwoAreSharedAsTheyWereBefore) {
  const MachineSplit one = Split({}, Machine(1));
  EXPECT_THAT(one.overrides, IsEmpty());
  EXPECT_THAT(one.warnings, IsEmpty());
  EXPECT_EQ(one.text, "");
  const MachineSplit two = Split({}, Machine(2));
  EXPECT_THAT(two.overrides, IsEmpty());
  EXPECT_THAT(two.warnings, IsEmpty());
  EXPECT_EQ(two.text,
            "2 GPUs, which processes share: 1 trainer rank on 0; 1 rollout "
            "worker on 1; 1 teacher on 0");
}

TEST_F(MachineSplitTest, WhatIsSetStaysAndGpusThatItLeavesAreWarnedOf) {
  ::setenv("DAPD_TRAINER__RANKS", "1", 1);
  std::vector<std::string> settings = {"run.teacher_workers=1",
                                       "run.rollout_workers=1"};
  // The rest is of use to the only worker, whose size nobody has set.
  const MachineSplit wide = Split(settings, Machine(8));
  EXPECT_THAT(wide.overrides, ElementsAre("rollout.tensor_parallel=4"));
  EXPECT_THAT(wide.warnings,
              ElementsAre(HasSubstr("2 of 8 GPUs are not used")));
  settings.emplace_back("rollout.tensor_parallel=1");
  const MachineSplit split = Split(settings, Machine(8));
  EXPECT_THAT(split.overrides, IsEmpty());
  EXPECT_THAT(
      split.warnings,
      ElementsAre("5 of 8 GPUs are not used (3, 4, 5, 6, 7): the configuration "
                  "has trainer.ranks=1 (environment) and "
                  "run.teacher_workers=1 (--set); without these `dapd run` "
                  "would use 8: 4 trainer ranks, 1 rollout worker, 3 teachers; "
                  "run.gpus=3 leaves them to others"));
  ::unsetenv("DAPD_TRAINER__RANKS");
  // If only the ranks are set, the other numbers are chosen for them.
  const MachineSplit ranks = Split({"trainer.ranks=2"}, Machine(8));
  EXPECT_EQ(ranks.config.trainer.ranks, 2);
  EXPECT_THAT(ranks.warnings, IsEmpty());
  EXPECT_THAT(ranks.text, HasSubstr("2 trainer ranks on 0, 1; "));
}

TEST_F(MachineSplitTest, AStepWithoutWorkForAllOfThemIsTheReason) {
  const MachineSplit split = Split({"objective.preset=sft",
                                    "trainer.batch_size=4",
                                    "trainer.micro_batch_size=2"},
                                   Machine(4));
  EXPECT_THAT(split.overrides, ElementsAre("trainer.ranks=2"));
  EXPECT_EQ(split.text, "4 GPUs: 2 trainer ranks on 0, 1");
  EXPECT_THAT(
      split.warnings,
      ElementsAre(
          AllOf(HasSubstr("2 of 4 GPUs are not used (2, 3): a step of "
                          "trainer.batch_size 4 has work for 2 trainer ranks"),
                HasSubstr("run.gpus=2"))));
}

TEST_F(MachineSplitTest, ANumberOfGpusIsTakenFromTheFirstOn) {
  ::setenv(kVisibleGpusVariable, "7,5,3,1", 1);
  const MachineSplit split = Split({"run.gpus=3"}, Machine(4));
  EXPECT_THAT(split.names, ElementsAre("7", "5", "3"));
  EXPECT_THAT(split.gpus, SizeIs(3));
  EXPECT_EQ(split.text,
            "3 GPUs: 1 trainer rank on 7; 1 rollout worker on 5; 1 teacher on "
            "3");
  EXPECT_THAT(split.warnings, IsEmpty()) << "they are left on purpose";
  const auto status =
      SplitMachine(Load({"run.gpus=9"}), {}, FourBillion(), Machine(4))
          .status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_EQ(status.message(),
            "run.gpus is 9 (--set), but there are 4 GPUs (7, 5, 3, 1): lower "
            "it, or leave it at auto");
}

TEST_F(MachineSplitTest, ARunThatGoesOnKeepsItsSplitWhileThereAreGpusForIt) {
  const Config begun = Split({}, Machine(4)).config;
  ASSERT_EQ(begun.trainer.ranks, 2);
  const MachineSplit same = Split({}, Machine(4), begun);
  EXPECT_EQ(same.config.trainer.ranks, 2);
  EXPECT_THAT(same.warnings, IsEmpty());
  const MachineSplit more = Split({}, Machine(8), begun);
  EXPECT_EQ(more.config.trainer.ranks, 2);
  EXPECT_THAT(
      more.warnings,
      ElementsAre(HasSubstr(
          "4 of 8 GPUs are not used (4, 5, 6, 7): the run goes on with the "
          "split that it began with, 2 trainer ranks, 1 rollout worker, 1 "
          "teacher; --set trainer.ranks=4 --set run.teacher_workers=3 uses 8: "
          "the result is then the same up to rounding, but not bit for bit")));
  const MachineSplit fewer = Split({}, Machine(3), begun);
  EXPECT_EQ(fewer.config.trainer.ranks, 1);
  EXPECT_THAT(fewer.warnings,
              ElementsAre(HasSubstr(
                  "the run began with 2 trainer ranks, 1 rollout worker, 1 "
                  "teacher and goes on with 1 trainer rank, 1 rollout worker, "
                  "1 teacher: the result is then the same up to rounding")));
  // A number that is set now counts more than the run's earlier number.
  const MachineSplit set = Split({"trainer.ranks=4"}, Machine(8), begun);
  EXPECT_EQ(set.config.trainer.ranks, 4);
  EXPECT_EQ(set.config.run.teacher_workers, 3);
}

TEST_F(MachineSplitTest, TheRunInAFolderIsReadFromItsConfiguration) {
  LoadedConfig loaded = Load({"trainer.ranks=2"});
  loaded.config.run.output_dir = TempPath("runs");
  const RunConfig& run = loaded.config.run;
  EXPECT_FALSE(BegunConfig(run).has_value());
  ASSERT_TRUE(MakeDirectories(FolderOf(run)).ok());
  const std::string path = JoinPath(FolderOf(run), "config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, DumpConfig(loaded)).ok());
  ASSERT_TRUE(BegunConfig(run).has_value());
  EXPECT_EQ(BegunConfig(run)->trainer.ranks, 2);
  ASSERT_TRUE(WriteFileAtomically(path, "trainer: {ran").ok());
  EXPECT_FALSE(BegunConfig(run).has_value());
}

// The configuration is refused later, with what it lacks (gpu_shares.h).
TEST_F(MachineSplitTest, WhereNothingFitsTheConfigurationStays) {
  const MachineSplit split = Split({}, Machine(8, 10));
  EXPECT_THAT(split.overrides, IsEmpty());
  EXPECT_THAT(split.warnings,
              ElementsAre(HasSubstr("devices of 10.0 GiB has room for a "
                                    "trainer rank")));
}

}  // namespace
}  // namespace dapd
