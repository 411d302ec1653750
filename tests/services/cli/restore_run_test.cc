// Restores from a folder with the real helper; the test makes the copy by hand.
#include "services/cli/restore_run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/sha256.h"
#include "common/copy/run_copy.h"
#include "services/trainer/record/manifest.h"
#include "services/trainer/record/run_outcome.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr char kLines[] = "{\"step\": 1}\n{\"step\": 2}\n";

class RestoreRunTest : public testing::Test {
 protected:
  RestoreRunTest()
      : store_({.url = place_, .command = ObjectStoreCommand("", place_)}) {
    for (const int64_t step : {2, 4}) MakeCopy(step);
  }

  Content Store(const std::string& bytes) {
    const Content content{.bytes = static_cast<int64_t>(bytes.size()),
                          .sha256 = Sha256Hex(bytes)};
    const std::string path = JoinPath(place_, ObjectName(content));
    EXPECT_TRUE(MakeDirectories(JoinPath(place_, "objects")).ok());
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    return content;
  }
  // Makes a copy of a run that is to take six steps.
  void MakeCopy(int64_t step) {
    const std::string made = TempPath(absl::StrCat("checkpoint-", step));
    EXPECT_TRUE(MakeDirectories(made).ok());
    const std::string state = absl::StrCat("state of ", step);
    EXPECT_TRUE(WriteFileAtomically(made + "/state.json", state).ok());
    EXPECT_TRUE(WriteManifest(made).ok());
    const std::string under = absl::StrFormat("checkpoints/step-%06d/", step);
    RunCopy copy{
        .step = step,
        .run_id = "mine",
        .files = {{under + "state.json", {Store(state)}},
                  {under + "manifest.json",
                   {Store(ReadFile(made + "/manifest.json", 1 << 20).value())}},
                  {"config.yaml", {Store("trainer: {steps: 6}\n")}},
                  {"metrics.jsonl",
                   {Store("{\"step\": 1}\n"), Store("{\"step\": 2}\n")}},
                  {"answers.jsonl", {}}}};
    if (step == 6) copy.files["summary.json"] = {Store("{\"steps\": 6}\n")};
    EXPECT_TRUE(MakeDirectories(JoinPath(place_, "commits")).ok());
    EXPECT_TRUE(WriteFileAtomically(JoinPath(place_, CommitName(step)),
                                    CommitText(copy))
                    .ok());
  }
  std::string Read(const std::string& name) {
    return ReadFile(JoinPath(folder_, name), 1 << 20).value_or("nothing");
  }

  const std::string place_ = TempPath("copy");
  const std::string folder_ = TempPath("run");
  ObjectStore store_;
};

TEST_F(RestoreRunTest, TheNewestIsMadeOfItsParts) {
  const auto run = RestoreRun(store_, folder_, -1);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->step, 4);
  EXPECT_EQ(Read("metrics.jsonl"), kLines);
  EXPECT_EQ(Read("answers.jsonl"), "");
  EXPECT_EQ(Read("checkpoints/step-000004/state.json"), "state of 4");
  EXPECT_FALSE(FileExists(folder_ + ".restoring"));
}

TEST_F(RestoreRunTest, AFolderThatIsThereIsRefused) {
  ASSERT_TRUE(MakeDirectories(folder_).ok());
  const auto run = RestoreRun(store_, folder_, -1);
  EXPECT_TRUE(absl::IsFailedPrecondition(run.status())) << run.status();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(RestoreRunTest, AFolderThatIsThereOnceTheLockIsFreeIsRefusedToo) {
  const std::string aside = folder_ + ".restoring";
  ASSERT_TRUE(MakeDirectories(aside).ok());
  const int other =
      ::open((aside + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  // The store's helper starts here already, so that RestoreRun() asks for the
  // lock before the other process releases it.
  ASSERT_TRUE(store_.List("commits").ok());
  std::thread before([&] {
    absl::SleepFor(absl::Milliseconds(40));
    std::filesystem::rename(aside, folder_);
    ::close(other);
  });
  const auto run = RestoreRun(store_, folder_, -1);
  before.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(run.status())) << run.status();
  EXPECT_FALSE(FileExists(aside)) << "all of it was copied again";
}

TEST_F(RestoreRunTest, AFolderThatCannotBeThereIsNotCalledOneThatIs) {
  ASSERT_TRUE(WriteFileAtomically(folder_, "a file").ok());
  const auto run = RestoreRun(store_, folder_ + "/run", -1);
  EXPECT_TRUE(absl::IsInvalidArgument(run.status())) << run.status();
}

TEST_F(RestoreRunTest, AStepThatIsNotThereNamesThoseThatAre) {
  const auto run = RestoreRun(store_, folder_, 3);
  EXPECT_TRUE(absl::IsNotFound(run.status())) << run.status();
  EXPECT_THAT(std::string(run.status().message()),
              HasSubstr("copies of steps 2, 4"));
}

TEST_F(RestoreRunTest, ADamagedObjectGivesWayToTheStepBefore) {
  const Content state{.bytes = 10, .sha256 = Sha256Hex("state of 4")};
  ASSERT_TRUE(
      WriteFileAtomically(JoinPath(place_, ObjectName(state)), "state of 5")
          .ok());
  EXPECT_TRUE(absl::IsDataLoss(RestoreRun(store_, folder_, 4).status()));
  EXPECT_FALSE(FileExists(folder_));
  const auto run = RestoreRun(store_, folder_, -1);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->step, 2);
  EXPECT_FALSE(FileExists(folder_ + "/checkpoints/step-000004/state.json"));
}

TEST_F(RestoreRunTest, ACopyThatGoesOnMeanwhileIsFollowed) {
  bool has_gone_on = false;
  const auto go_on = [&] {
    // Steps 2 and 4 are listed by then; their objects are removed.
    if (!has_gone_on && FileExists(folder_ + ".restoring")) {
      has_gone_on = true;
      std::filesystem::remove_all(place_);
      MakeCopy(6);
    }
    return false;
  };
  ObjectStore store({.url = place_,
                     .command = ObjectStoreCommand("", place_),
                     .is_cancelled = go_on});
  const auto run = RestoreRun(store, folder_, -1);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->step, 6);
  EXPECT_EQ(Read("checkpoints/step-000006/state.json"), "state of 6");
}

TEST_F(RestoreRunTest, TheEndOfARunThatHadFinishedCountsAsTold) {
  ASSERT_TRUE(RestoreRun(store_, folder_, -1).ok());
  EXPECT_FALSE(ReadOutcome(folder_).has_value()) << "it is to go on";
  MakeCopy(6);
  const std::string finished = TempPath("finished");
  ASSERT_TRUE(RestoreRun(store_, finished, -1).ok());
  const auto outcome = ReadOutcome(finished);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->state, "finished");
}

TEST_F(RestoreRunTest, WhatAnInterruptedRestoreLeftIsVerifiedAndUsed) {
  const std::string aside = folder_ + ".restoring";
  ASSERT_TRUE(MakeDirectories(aside).ok());
  ASSERT_TRUE(
      WriteFileAtomically(aside + "/metrics.jsonl", "{\"step\": 1}\n{\"st")
          .ok());
  ASSERT_TRUE(WriteFileAtomically(aside + "/answers.jsonl", "torn").ok());
  ASSERT_TRUE(WriteFileAtomically(aside + "/foreign", "x").ok());
  ASSERT_TRUE(RestoreRun(store_, folder_, -1).ok());
  EXPECT_EQ(Read("metrics.jsonl"), kLines);
  EXPECT_EQ(Read("answers.jsonl"), "");
  EXPECT_FALSE(FileExists(folder_ + "/foreign"));
}

// After a power failure a file may have its size but not its bytes.
TEST_F(RestoreRunTest, WhatIsLeftWithOtherBytesIsCopiedAnew) {
  const std::string aside = folder_ + ".restoring";
  ASSERT_TRUE(MakeDirectories(aside).ok());
  ASSERT_TRUE(
      WriteFileAtomically(aside + "/metrics.jsonl", std::string(26, '\0'))
          .ok());
  ASSERT_TRUE(RestoreRun(store_, folder_, -1).ok());
  EXPECT_EQ(Read("metrics.jsonl"), kLines);
}

TEST_F(RestoreRunTest, APlaceWithoutACopyIsNamed) {
  const std::string place = TempPath("nothing");
  ObjectStore empty({.url = place, .command = ObjectStoreCommand("", place)});
  const auto run = RestoreRun(empty, folder_, -1);
  EXPECT_TRUE(absl::IsNotFound(run.status())) << run.status();
  EXPECT_THAT(std::string(run.status().message()), HasSubstr(place));
  EXPECT_FALSE(FileExists(folder_ + ".restoring"));
}

}  // namespace
}  // namespace dapd
