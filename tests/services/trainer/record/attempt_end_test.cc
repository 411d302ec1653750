#include "services/trainer/record/attempt_end.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/config/run_folder.h"
#include "services/trainer/record/run_outcome.h"
#include "tests/fakes/http_listener.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class AttemptEndTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.run.name = "first";
    config_.run.output_dir = TempPath("runs");
    config_.run.notify_url = server_.url();
    config_.trainer.steps = 9;
    ASSERT_TRUE(MakeDirectories(Folder()).ok());
  }
  std::string Folder() const { return FolderOf(config_.run); }
  AttemptEnd Begin() const {
    return *AttemptEnd::Create(config_, [] { return false; });
  }
  void Finish() const {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(Folder(), "summary.json"),
                                    R"({"steps": 9})")
                    .ok());
  }

  HttpListener server_{[](size_t) { return HttpAnswer(200); }};
  Config config_;
};

TEST_F(AttemptEndTest, AFailureIsRecordedAndToldWhereTheTrainerKnewOfAStop) {
  AttemptEnd end = Begin();
  const absl::Status stop = WithExitCode(absl::CancelledError("told to stop"),
                                         ExitCode::kInterrupted);
  ASSERT_TRUE(WriteOutcome(Folder(), OutcomeOf(stop)).ok());
  end.Tell(WithExitCode(absl::InternalError("rank 1 failed"), ExitCode::kData));
  const auto recorded = ReadOutcome(Folder());
  ASSERT_TRUE(recorded.has_value());
  EXPECT_EQ(recorded->state, "failed");
  EXPECT_EQ(recorded->message, "rank 1 failed");
  ASSERT_THAT(server_.requests(), SizeIs(1));
  EXPECT_THAT(server_.requests()[0], HasSubstr("rank 1 failed"));
}

TEST_F(AttemptEndTest, ATrainerThatStaysWhenDoneIsNotWaitedFor) {
  config_.trainer.when_done = WhenDone::kServe;
  AttemptEnd end = Begin();
  end.TellIfDone();
  EXPECT_THAT(server_.requests(), IsEmpty());
  Finish();
  end.TellIfDone();
  EXPECT_THAT(server_.requests(), SizeIs(1));
  end.TellIfDone();
  end.Tell(absl::OkStatus());
  EXPECT_THAT(server_.requests(), SizeIs(1));
}

// The trainer may still copy the run.
TEST_F(AttemptEndTest, ATrainerThatEndsWhenDoneIsWaitedFor) {
  AttemptEnd end = Begin();
  Finish();
  end.TellIfDone();
  EXPECT_THAT(server_.requests(), IsEmpty());
  end.Tell(absl::OkStatus());
  EXPECT_THAT(server_.requests(), SizeIs(1));
}

TEST_F(AttemptEndTest, ARunThatHadFinishedBeforeIsNotToldOfAgain) {
  Finish();
  ASSERT_TRUE(WriteOutcome(Folder(), OutcomeOf(absl::OkStatus())).ok());
  config_.trainer.when_done = WhenDone::kServe;
  AttemptEnd end = Begin();
  end.TellIfDone();
  end.Tell(ConfigError("holds a finished run"));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(AttemptEndTest, AnEndThatWasNotToldIsToldOnce) {
  Finish();  // and then the process was killed
  for (int attempt = 0; attempt < 2; ++attempt) {
    Begin().Tell(ConfigError("holds a finished run"));
  }
  ASSERT_THAT(server_.requests(), SizeIs(1));
  EXPECT_THAT(server_.requests()[0], HasSubstr(R"("state":"finished")"));
}

TEST_F(AttemptEndTest, AnEndThatAnAttemptWentBeyondIsNotToldAgain) {
  Finish();
  const std::string settings = JoinPath(Folder(), "config.yaml");
  ASSERT_TRUE(WriteFileAtomically(settings, "trainer: {steps: 20}").ok());
  const auto stopped = OutcomeOf(absl::CancelledError("told to stop"));
  ASSERT_TRUE(WriteOutcome(Folder(), stopped).ok());
  Begin().Tell(ConfigError("holds a finished run"));
  EXPECT_THAT(server_.requests(), IsEmpty());
  EXPECT_NE(ReadOutcome(Folder())->state, "finished");
}

}  // namespace
}  // namespace dapd
