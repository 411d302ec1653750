#include "services/trainer/record/full_disk_rule.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/metrics/metrics_registry.h"
#include "services/trainer/record/disk_wait.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FullDiskRuleTest : public testing::Test {
 protected:
  // Writes to a disk that accepts the write at attempt `refusals` + 1.
  absl::Status Write(int refusals) {
    return Write(refusals, FileError("write", "/a/b", ENOSPC));
  }
  // Writes to a disk that refuses with `refusal`.
  absl::Status Write(int refusals, const absl::Status& refusal) {
    int left = refusals;
    testing::internal::CaptureStderr();
    const absl::Status status = rule_.Write("the checkpoint", [&] {
      return left-- > 0 ? refusal : absl::OkStatus();
    });
    log_ = testing::internal::GetCapturedStderr();
    return status;
  }

  bool SaysPaused() const {
    const std::string text = registry_.Expose();
    const size_t begin = text.find("\ndapd_trainer_paused_for_disk{");
    const size_t value = text.find("} ", begin) + 2;
    return text.substr(value, text.find('\n', value) - value) == "1";
  }

  MetricsRegistry registry_{"trainer", "demo", {}};
  TrainerMetrics metrics_{registry_, {}};
  TrainerStatus status_;
  std::vector<v1::RunWarning> seen_;  // at each pause
  absl::Duration paused_;
  bool folder_says_so_ = false;  // at the last pause
  absl::Duration stop_after_ = absl::InfiniteDuration();
  const std::string folder_ = TempPath("run");
  FullDiskRule rule_{
      folder_,
      OnWriteError::kPause,
      [this](absl::Duration pause) {
        const v1::GetStatusResponse now = status_.Get();
        seen_.insert(seen_.end(), now.warnings().begin(), now.warnings().end());
        paused_ += pause;
        EXPECT_TRUE(SaysPaused());
        folder_says_so_ = *WaitsForDisk(folder_);
        return paused_ >= stop_after_;
      },
      &metrics_,
      &status_};
  std::string log_;
};

TEST_F(FullDiskRuleTest, TheStatusWarnsOfAWaitAsLongAsItLasts) {
  status_.Change([](v1::GetStatusResponse& state) {
    state.set_step(7);
    state.add_warnings()->set_term("entangled_rollout");
  });
  ASSERT_TRUE(Write(2).ok());
  ASSERT_EQ(seen_.size(), 4u) << "two pauses, of two warnings each";
  for (const int i : {1, 3}) {
    EXPECT_EQ(seen_[i].term(), "");
    EXPECT_EQ(seen_[i].step(), 7);
    EXPECT_THAT(seen_[i].text(),
                AllOf(HasSubstr("the checkpoint could not be written"),
                      HasSubstr("/a/b")));
  }
  ASSERT_EQ(status_.Get().warnings_size(), 1) << "that of the term stays";
  EXPECT_THAT(log_, HasSubstr("training continues"));
  EXPECT_FALSE(SaysPaused());
}

TEST_F(FullDiskRuleTest, TheLogSaysAgainThatTheRunWaits) {
  ASSERT_TRUE(Write(100).ok());
  ASSERT_GT(paused_, absl::Minutes(15));
  const std::vector<std::string> parts =
      absl::StrSplit(log_, "training pauses until it can");
  EXPECT_EQ(parts.size() - 1, 4u) << "at once and every five minutes";
}

TEST_F(FullDiskRuleTest, TheFolderSaysSoAsLongAsTheRunWaits) {
  ASSERT_TRUE(Write(1).ok());
  EXPECT_FALSE(folder_says_so_) << "no file carries the mark";
  ASSERT_TRUE(MakeDirectories(folder_).ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/config.yaml", "").ok());
  ASSERT_TRUE(Write(1).ok());
  EXPECT_TRUE(folder_says_so_);
  EXPECT_FALSE(*WaitsForDisk(folder_));
}

TEST_F(FullDiskRuleTest, ADiskThatFailsOrLosesWhatItTookIsWaitedFor) {
  for (const absl::Status& refusal : {FileError("sync", "/a/b", EIO),
                                      FileError("open", "/a/b", EROFS),
                                      FileError("read", "/a/b", ENOENT),
                                      absl::DataLossError("reads back")}) {
    EXPECT_TRUE(Write(1, refusal).ok()) << refusal;
    EXPECT_THAT(log_, HasSubstr("has been written; training continues"));
  }
}

TEST_F(FullDiskRuleTest, AFullGpuIsNoFullDisk) {
  const absl::Status full =
      absl::ResourceExhaustedError("CUDA out of memory. Tried to allocate");
  EXPECT_EQ(Write(1, full), full);
  EXPECT_TRUE(seen_.empty()) << "nobody waited";
  EXPECT_THAT(log_, Not(HasSubstr("could not be written")));
  // A run that goes on without refused files does not wait either.
  FullDiskRule lenient(
      folder_,
      OnWriteError::kContinue,
      [](absl::Duration) { return false; },
      &metrics_,
      &status_);
  EXPECT_EQ(lenient.Write("the checkpoint", [&] { return full; }), full);
}

TEST_F(FullDiskRuleTest, AnotherErrorEndsTheWait) {
  const absl::Status lost = absl::InternalError("the device");
  int writes = 0;
  const absl::Status status = rule_.Write("the checkpoint", [&] {
    return ++writes < 3 ? FileError("write", "/a/b", ENOSPC) : lost;
  });
  EXPECT_EQ(status, lost);
  EXPECT_FALSE(SaysPaused());
  EXPECT_EQ(status_.Get().warnings_size(), 0);
}

TEST_F(FullDiskRuleTest, AStopEndsTheWait) {
  stop_after_ = absl::Milliseconds(200);
  const absl::Status status = Write(100);
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/a/b"));
  EXPECT_THAT(log_, Not(HasSubstr("training continues")));
}

TEST(FullDiskRuleWithoutFolderTest, ARunWhoseFolderIsGoneDoesNotWaitForIt) {
  for (const auto on_write_error :
       {OnWriteError::kPause, OnWriteError::kContinue, OnWriteError::kFail}) {
    const std::string folder = TempPath("gone");
    ASSERT_TRUE(MakeDirectories(folder).ok());
    MetricsRegistry registry("trainer", "demo", {});
    TrainerMetrics metrics(registry, {});
    TrainerStatus status;
    FullDiskRule rule(
        folder,
        on_write_error,
        [](absl::Duration) {
          ADD_FAILURE() << "it waits";
          return true;
        },
        &metrics,
        &status);
    // Files that are open can still be written.
    const auto write = [] { return absl::OkStatus(); };
    EXPECT_TRUE(rule.Write("a step", write).ok());
    std::filesystem::remove_all(folder);
    for (const absl::Status& gone :
         {rule.Write("a step", write), rule.MustWrite("the summary", write)}) {
      EXPECT_EQ(ExitCodeOf(gone), ExitCode::kRunLost) << NameOf(on_write_error);
      EXPECT_THAT(std::string(gone.message()),
                  HasSubstr("was removed or renamed while the run was under "
                            "way"));
    }
  }
}

}  // namespace
}  // namespace dapd
