// Tests the copier's thread with the real helper and a folder, and with
// programs that misbehave.
#include "services/trainer/copy/run_copier.h"

#include <atomic>
#include <filesystem>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/config/run_folder.h"
#include "common/copy/run_copy.h"
#include "tests/fakes/temp_path.h"
#include "tests/services/trainer/copy/run_folder_example.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

bool Never(absl::Duration time) {
  absl::SleepFor(time);
  return false;
}

class RunCopierTest : public testing::Test {
 protected:
  RunCopierOptions Options() {
    RunCopierOptions options;
    options.url = place_;
    options.run_name = "example";
    options.folder = folder_;
    options.command = ObjectStoreCommand("", place_);
    options.first_pause = absl::Milliseconds(10);
    options.longest_pause = absl::Milliseconds(50);
    options.observer.on_newest = [this](int64_t step) { newest_ = step; };
    options.observer.on_failed = [this] { ++failed_; };
    options.observer.on_left_out = [this] { ++left_out_; };
    return options;
  }
  // Returns options with a helper that gives the same answer to every question.
  RunCopierOptions Answering(const std::string& answer) {
    RunCopierOptions options = Options();
    options.command = {"sh",
                       "-c",
                       "echo '{\"ready\": \"0\"}'; while read -r line; do " +
                           answer + "; done"};
    return options;
  }

  const std::string folder_ = TempPath("run");
  const std::string place_ = TempPath("copy");
  std::atomic<int64_t> newest_ = -1;
  std::atomic<int> failed_ = 0;
  std::atomic<int> left_out_ = 0;
};

TEST_F(RunCopierTest, WhatIsAddedIsCopiedAndThinned) {
  SaveStep(folder_, 2);
  auto copier = RunCopier::Start(Options());
  ASSERT_TRUE(copier.ok()) << copier.status();
  for (const int64_t step : {2, 4, 6}) {
    SaveStep(folder_, step);
    (*copier)->Add(step);
    ASSERT_TRUE((*copier)->Finish(absl::Minutes(2), Never)) << step;
    EXPECT_EQ(newest_, step);
  }
  ObjectStore store({.url = place_, .command = ObjectStoreCommand("", place_)});
  EXPECT_THAT(*ListCommits(store), ElementsAre(4, 6));
  EXPECT_EQ(failed_, 0);
  copier->reset();
  EXPECT_FALSE(FileExists(folder_ + "/.copying"));
}

TEST_F(RunCopierTest, AStoreThatHangsHoldsUpNobody) {
  RunCopierOptions options = Answering("sleep 1000");
  options.keep = 1;
  SaveStep(folder_, 2);
  auto copier = RunCopier::Start(options);
  ASSERT_TRUE(copier.ok()) << copier.status();
  const absl::Time start = absl::Now();
  for (const int64_t step : {2, 4, 6, 8}) {
    SaveStep(folder_, step);
    (*copier)->Add(step);
  }
  EXPECT_FALSE((*copier)->Finish(absl::Milliseconds(300), Never));
  EXPECT_FALSE((*copier)->Finish(absl::Minutes(2), [](absl::Duration) {
    return true;  // told to stop
  }));
  copier->reset();
  EXPECT_LT(absl::Now() - start, absl::Minutes(1));
  EXPECT_GE(left_out_, 2);
}

TEST_F(RunCopierTest, ADeniedCopyIsNotWaitedFor) {
  SaveStep(folder_, 2);
  auto copier = RunCopier::Start(
      Answering("echo '{\"error\": \"no\", \"kind\": \"denied\"}'"));
  ASSERT_TRUE(copier.ok()) << copier.status();
  (*copier)->Add(2);
  const absl::Time start = absl::Now();
  EXPECT_FALSE((*copier)->Finish(absl::Minutes(5), Never));
  EXPECT_LT(absl::Now() - start, absl::Minutes(1));
  EXPECT_GE(failed_, 1);
}

TEST_F(RunCopierTest, AnythingElseIsTriedAgain) {
  SaveStep(folder_, 2);
  auto copier = RunCopier::Start(
      Answering("echo '{\"error\": \"no\", \"kind\": \"other\"}'"));
  ASSERT_TRUE(copier.ok()) << copier.status();
  (*copier)->Add(2);
  (*copier)->Finish(absl::Minutes(1), [this](absl::Duration time) {
    absl::SleepFor(time);
    return failed_ >= 4;
  });
  EXPECT_GE(failed_, 4);
}

TEST_F(RunCopierTest, ACutThatSomebodyRemovedIsLeftOut) {
  RunCopierOptions options = Options();
  // The helper starts only after the cut was removed.
  options.command.insert(
      options.command.begin(),
      {"sh",
       "-c",
       "while [ ! -e " + folder_ + "/go ]; do sleep 0.02; done; exec \"$@\"",
       "sh"});
  SaveStep(folder_, 2);
  auto copier = RunCopier::Start(options);
  ASSERT_TRUE(copier.ok()) << copier.status();
  (*copier)->Add(2);
  std::filesystem::remove_all(folder_ + "/.copying");
  WriteIn(folder_, "go", "");
  const absl::Time start = absl::Now();
  EXPECT_FALSE((*copier)->Finish(absl::Minutes(5), Never));
  EXPECT_LT(absl::Now() - start, absl::Minutes(2));
  EXPECT_EQ(failed_, 1);
  SaveStep(folder_, 4);
  (*copier)->Add(4);
  EXPECT_TRUE((*copier)->Finish(absl::Minutes(2), Never));
  EXPECT_EQ(newest_, 4);
}

TEST_F(RunCopierTest, AFinishedRunIsCopiedUnlessAnotherHoldsIt) {
  Config config;
  config.run.output_dir = TempPath("runs");
  config.run.name = "example";
  config.checkpoint.copy_to = place_;
  const std::string run = JoinPath(config.run.output_dir, "example");
  SaveStep(run, 2);
  WriteIn(run, "summary.json", "{\"steps\": 2}");
  {
    const auto holder = RunFolder::Open(config.run);
    ASSERT_TRUE(holder.ok()) << holder.status();
    WriteIn(run, ".copying/step-000002-0/config.yaml", "its holder's");
    CopyFinishedRun(config, Never);
    EXPECT_TRUE(FileExists(run + "/.copying/step-000002-0/config.yaml"));
    EXPECT_FALSE(FileExists(place_ + "/example"));
  }
  CopyFinishedRun(config, Never);
  EXPECT_TRUE(FileExists(place_ + "/example/commits/step-000002.json"));
}

TEST_F(RunCopierTest, NothingIsCopiedUnlessItIsAskedFor) {
  Config config;
  EXPECT_FALSE(CopierOptions(config, folder_).has_value());
  config.checkpoint.copy_to = "s3://bucket/runs/";
  config.run.name = "mine";
  const auto options = CopierOptions(config, folder_);
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->url, "s3://bucket/runs/mine");
}

}  // namespace
}  // namespace dapd
