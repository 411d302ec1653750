#include "services/trainer/record/run_outcome.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class CorrectOutcomeTest : public testing::Test {
 protected:
  CorrectOutcomeTest() : folder_(TempPath("run")) {
    EXPECT_TRUE(MakeDirectories(folder_).ok());
  }
  // Returns the folder's outcome after a trainer has recorded `recorded` and
  // `dapd run` has seen `seen` of an attempt that began at `start`.
  RunOutcome Corrected(const absl::Status& recorded,
                       const absl::Status& seen,
                       absl::Time start) {
    EXPECT_TRUE(WriteOutcome(folder_, OutcomeOf(recorded)).ok());
    CorrectOutcome(folder_, seen, start);
    return ReadOutcome(folder_).value();
  }

  const std::string folder_;
  const absl::Time start_ = absl::Now();
  const absl::Status stop_ = absl::CancelledError("shut down");
  const absl::Status cause_ =
      WithExitCode(absl::InternalError("rank 1 said why"), ExitCode::kData);
};

TEST_F(CorrectOutcomeTest, AFailureTakesThePlaceOfWhatItBrought) {
  for (const absl::Status& brought : {stop_, absl::AbortedError("lost")}) {
    const RunOutcome outcome = Corrected(brought, cause_, start_);
    EXPECT_EQ(outcome.state, "failed");
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_EQ(outcome.message, "rank 1 said why");
  }
}

TEST_F(CorrectOutcomeTest, TheTrainersOwnWordStays) {
  EXPECT_EQ(Corrected(absl::NotFoundError("no data"), cause_, start_).message,
            "no data");
  EXPECT_EQ(Corrected(stop_, absl::CancelledError("Ctrl-C"), start_).message,
            "shut down");
  // A worker may fail while the trainer of a finished run still serves.
  for (const absl::Status& seen : {absl::OkStatus(), cause_}) {
    EXPECT_EQ(Corrected(absl::OkStatus(), seen, start_).state, "finished");
  }
}

TEST_F(CorrectOutcomeTest, WhoQuotesTheTrainersWordSaysMore) {
  const absl::Status gave_up = absl::InternalError("task 3 was given up");
  const absl::Status fate = absl::InternalError(
      "teacher-0 was killed; the trainer gave up: task 3 was given up");
  EXPECT_EQ(Corrected(gave_up, fate, start_).message, fate.message());
}

TEST_F(CorrectOutcomeTest, WithoutAFolderThereIsNothingToCorrect) {
  CorrectOutcome(folder_ + "-gone", cause_, start_);
  EXPECT_FALSE(FileExists(folder_ + "-gone"));
}

TEST_F(CorrectOutcomeTest, AnOlderAttemptsOutcomeStands) {
  EXPECT_EQ(Corrected(stop_, cause_, start_ + absl::Seconds(9)).state,
            "stopped");
}

TEST_F(CorrectOutcomeTest, ATrainerThatWasKilledIsSpokenFor) {
  CorrectOutcome(folder_, cause_, start_);
  EXPECT_EQ(ReadOutcome(folder_)->message, "rank 1 said why");
}

TEST_F(CorrectOutcomeTest, ARunThatAnotherProcessGoesOnWithHasNoneYet) {
  const std::string path = JoinPath(folder_, ".lock");
  const int lock = ::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  CorrectOutcome(folder_, cause_, start_);
  EXPECT_FALSE(ReadOutcome(folder_).has_value());
  ::close(lock);
}

TEST_F(CorrectOutcomeTest, ARunThatIsFoundFinishedHasFinished) {
  EXPECT_TRUE(RecordFinished(folder_));
  EXPECT_EQ(ReadOutcome(folder_)->state, "finished") << "killed behind its end";
  EXPECT_FALSE(RecordFinished(folder_)) << "it is known";
  for (const absl::Status& recorded : {stop_, cause_}) {
    ASSERT_TRUE(WriteOutcome(folder_, OutcomeOf(recorded)).ok());
    EXPECT_TRUE(RecordFinished(folder_));
    const RunOutcome outcome = ReadOutcome(folder_).value();
    EXPECT_EQ(outcome.state, "finished");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.message, "");
  }
}

}  // namespace
}  // namespace dapd
