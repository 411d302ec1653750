#include "services/cli/run_supervisor.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/stop_requests.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The rank runs until it is told to stop.
constexpr char kGoesOn[] = "trap 'exit 130' TERM; while :; do sleep 0.05; done";

// The supervisor pauses this long before it restarts a process.
constexpr absl::Duration kPause = absl::Milliseconds(10);

// Has a run whose ranks 0 and 1 are shell scripts.
class RunSupervisorTest : public testing::Test {
 protected:
  absl::Status Follow(
      const std::string& rank_0,
      const std::string& rank_1,
      const std::function<void()>& look = [] {},
      absl::Duration lasting = absl::Minutes(10)) {
    RunSupervisor supervisor(
        {.lasting = lasting, .first_pause = kPause, .longest_pause = kPause});
    for (const std::string& script : {rank_0, rank_1}) {
      const bool first = trainers_.empty();
      auto trainer = Child(first ? "trainer" : "trainer-1",
                           script,
                           first ? "" : TempPath("trainer-1.log"));
      trainers_.push_back(trainer.get());
      supervisor.AddTrainer(std::move(trainer));
    }
    return supervisor.Follow(look);
  }

  // Follows a run with a shell script as worker and a trainer that keeps
  // running.
  absl::Status FollowWorker(const std::string& script,
                            absl::Duration lasting = absl::Minutes(10),
                            const std::string& trainer = kGoesOn) {
    RunSupervisor supervisor(
        {.lasting = lasting, .first_pause = kPause, .longest_pause = kPause});
    RETURN_IF_ERROR(supervisor.AddWorker(
        Child("worker", Counted(script), TempPath("worker.log"))));
    supervisor.AddTrainer(Child("trainer", trainer, ""));
    return supervisor.Follow([] {});
  }

  static std::unique_ptr<ChildProcess> Child(const std::string& name,
                                             const std::string& script,
                                             const std::string& log_path) {
    auto child = std::make_unique<ChildProcess>(
        name, std::vector<std::string>{"/bin/sh", "-c", script}, log_path);
    child->MarkWorkIn(TempPath(name + ".work"));
    return child;
  }

  // Returns `script` with a counter of its starts, which begins at 0.
  std::string Counted(const std::string& script) {
    EXPECT_TRUE(WriteFileAtomically(starts_, "").ok());
    return absl::StrCat("echo >>", starts_, "; ", script);
  }
  // Returns a counted script that runs `often` 29 times and `then` the next
  // time.
  std::string Until30(const std::string& often, const std::string& then) const {
    return absl::StrCat(
        "[ $(wc -l <", starts_, ") -ge 30 ] || ", often, "; ", then);
  }
  int Starts() const {
    return static_cast<int>(ReadFile(starts_, 1 << 20).value().size());
  }

  std::vector<const ChildProcess*> trainers_;  // set while Follow() runs

 private:
  const std::string starts_ = TempPath("starts");
};

TEST_F(RunSupervisorTest, TheFailureOfAnotherRankIsToldInItsOwnWords) {
  const absl::Status status = Follow(kGoesOn, "echo the cause; exit 4");
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("trainer-1 ended with code 4"),
                    HasSubstr("trainer-1.log"),
                    HasSubstr("the cause")));
}

// These codes mean errors such as a missing model: a restart would not help.
TEST_F(RunSupervisorTest, AWorkerThatWouldFailAgainEndsTheRun) {
  for (const int code : {2, 3, 4}) {
    const absl::Status status =
        FollowWorker(absl::StrCat("echo the cause; exit ", code));
    EXPECT_EQ(static_cast<int>(ExitCodeOf(status)), code);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("worker ended with code ", code)),
                      HasSubstr("the cause")));
    EXPECT_EQ(Starts(), 1);
  }
}

TEST_F(RunSupervisorTest, TheTrainerSavesWhereAWorkerEndsTheRun) {
  const std::string trains = TempPath("trains");
  const std::string saved = TempPath("saved");
  const auto script = [](const std::string& name, const std::string& text) {
    return std::make_unique<ChildProcess>(
        name,
        std::vector<std::string>{"/bin/sh", "-c", text},
        TempPath(name + ".log"));
  };
  RunSupervisor supervisor;
  ASSERT_TRUE(
      supervisor
          .AddWorker(script(
              "worker",
              absl::StrCat(
                  "while [ ! -e ", trains, " ]; do sleep 0.02; done; exit 4")))
          .ok());
  supervisor.AddTrainer(script("trainer",
                               absl::StrCat("trap 'echo >",
                                            saved,
                                            "; exit 130' TERM; echo >",
                                            trains,
                                            "; while :; do sleep 0.05; done")));
  EXPECT_EQ(ExitCodeOf(supervisor.Follow([] {})), ExitCode::kData);
  EXPECT_TRUE(FileExists(saved)) << "left to the destructor, which waits less";
}

TEST_F(RunSupervisorTest, NothingIsStartedAgainForEver) {
  EXPECT_EQ(ExitCodeOf(FollowWorker("exit 1")), ExitCode::kInternal);
  EXPECT_EQ(Starts(), 21);
  const absl::Status status = Follow(Counted("kill -9 $$"), kGoesOn);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("trainer was killed by signal 9 (SIGKILL), "),
                    HasSubstr("want of memory"),
                    HasSubstr("21 times in a row with no work done in between"),
                    Not(HasSubstr("137"))));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
  EXPECT_EQ(Starts(), 21);
}

TEST_F(RunSupervisorTest, HowEachProcessDiesIsSaidAndIsACodeOfOurOwn) {
  struct Case {
    std::string script;
    int code;
    std::string text;
  };
  for (const Case& c : {
           Case{"kill -9 $$", 1, "worker was killed by signal 9 (SIGKILL), "},
           {"kill -TERM $$", 1, "worker was killed by signal 15 (SIGTERM)"},
           {"kill -XCPU $$", 1, "worker was killed by signal 24 (SIGXCPU)"},
           {"kill -SEGV $$", 1, "worker crashed by SIGSEGV"},
           {"exit 75", 1, "worker ended with code 75"},
           {"exit 5", 1, "worker ended with code 5"},
           {"exit 3", 3, "worker ended with code 3 and would do so again"},
       }) {
    const absl::Status status = FollowWorker("echo the cause; " + c.script);
    EXPECT_EQ(static_cast<int>(ExitCodeOf(status)), c.code) << c.script;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(c.text), HasSubstr("the cause")));
  }
}

// The kernel may have killed the peer that told the trainer of the loss.
TEST_F(RunSupervisorTest,
       ATrainerThatGaveUpForWantOfAWorkerSaysWhatBecameOfIt) {
  const std::string died = TempPath("died");
  for (const int code : {1, 5}) {
    RunSupervisor supervisor(
        {.first_pause = kPause, .longest_pause = kPause}, [&](int ended_with) {
          return ended_with == code ? "task 3 was given up" : "";
        });
    ASSERT_TRUE(
        supervisor
            .AddWorker(Child("teacher-0",
                             absl::StrCat("echo >", died, "; kill -9 $$"),
                             TempPath("teacher-0.log")))
            .ok());
    supervisor.AddTrainer(
        Child("trainer",
              absl::StrCat("while [ ! -e ",
                           died,
                           " ]; do sleep 0.01; done; sleep 0.2; exit ",
                           code),
              ""));
    const absl::Status status = supervisor.Follow([] {});
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("teacher-0 was killed by signal 9 (SIGKILL), "),
                      HasSubstr("want of memory"),
                      HasSubstr("the trainer gave up: task 3 was given up")));
  }
}

TEST_F(RunSupervisorTest, AWorkerThatIsWellIsNotBlamed) {
  for (const int code : {1, 5}) {
    const absl::Status status =
        FollowWorker(kGoesOn, absl::Minutes(10), absl::StrCat("exit ", code));
    EXPECT_EQ(static_cast<int>(ExitCodeOf(status)), code);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("worker")));
  }
}

TEST_F(RunSupervisorTest, WhatLastsIsStartedAgainHoweverOftenItEnds) {
  const absl::Duration any = absl::ZeroDuration();
  const absl::Status status = FollowWorker(Until30("exit 1", "exit 4"), any);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_EQ(Starts(), 30);
  const absl::Status done = Follow(
      Counted(Until30("kill -9 $$", "exit 0")), kGoesOn, [] {}, any);
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(Starts(), 30);
}

TEST_F(RunSupervisorTest, AWorkerThatCrashesThriceInARowEndsTheRun) {
  for (const auto& [signal, name] : std::map<std::string, std::string>{
           {"SEGV", "crashed by SIGSEGV"},
           {"BUS", "crashed by SIGBUS"},
           {"FPE", "crashed by SIGFPE"},
           {"ABRT", "crashed by SIGABRT"},
           {"ILL",
            "crashed by SIGILL (an instruction that this processor lacks; it "
            "has "}}) {
    const absl::Status status =
        FollowWorker(absl::StrCat("echo the cause; kill -", signal, " $$"));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("worker " + name),
              HasSubstr("3 times in a row with no work done in between"),
              HasSubstr("worker.log"),
              HasSubstr("the cause")));
    EXPECT_EQ(Starts(), 3);
  }
}

TEST_F(RunSupervisorTest, AWorkerThatServesInBetweenIsStartedAgain) {
  const std::string serves =
      "echo $(($(cat $DAPD_WORK_MARK || echo 0) + 1)) >$DAPD_WORK_MARK; ";
  const absl::Status status =
      FollowWorker(Until30("{ " + serves + "kill -SEGV $$; }", "exit 4"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
  EXPECT_EQ(Starts(), 30);
}

TEST_F(RunSupervisorTest,
       ATrainerThatGaveUpForWantOfAWorkerThatCrashesIsNotBlamed) {
  // The trainer sees the loss of the worker before the supervisor does.
  const std::string crashed = TempPath("crashed");
  for (const int code : {5, 130}) {
    const absl::Status status = FollowWorker(
        absl::StrCat("echo the cause; echo >", crashed, "; kill -SEGV $$"),
        absl::Minutes(10),
        absl::StrCat(
            "while [ ! -e ", crashed, " ]; do sleep 0.01; done; exit ", code));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("worker crashed by SIGSEGV"),
                      HasSubstr("the cause"),
                      Not(HasSubstr("the trainer ended"))));
  }
}

TEST_F(RunSupervisorTest, ATrainerThatCrashesThriceInARowEndsTheRun) {
  const absl::Status status = Follow(Counted("kill -SEGV $$"), kGoesOn);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
  EXPECT_EQ(status.message(),
            "trainer crashed by SIGSEGV, 3 times in a row with no work done in "
            "between; please report it with its stack, which is above");
  EXPECT_EQ(Starts(), 3);
  const absl::Status other =
      Follow(kGoesOn, Counted("echo the cause; kill -ABRT $$"));
  EXPECT_EQ(ExitCodeOf(other), ExitCode::kInternal);
  EXPECT_THAT(std::string(other.message()),
              AllOf(HasSubstr("trainer-1 crashed by SIGABRT, 3 times"),
                    HasSubstr("the cause")));
  EXPECT_EQ(Starts(), 3);
}

TEST_F(RunSupervisorTest, AStepThatWasRecordedBeforeIsNoWork) {
  const std::string records = "echo 7 >$DAPD_WORK_MARK; ";
  const absl::Status status =
      Follow(Counted(records + "kill -SEGV $$"), kGoesOn);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
  EXPECT_EQ(Starts(), 3) << "each got as far as step 7";
}

// The test has its own process, because requests to stop are counted for ever.
TEST_F(RunSupervisorTest, AStopEndsThePauseBeforeAStart) {
  const auto stop_in_pause = [] {
    CatchStopRequests();
    RunSupervisor supervisor(
        {.first_pause = absl::Hours(1), .longest_pause = absl::Hours(1)});
    supervisor.AddTrainer(Child("trainer", "kill -KILL $$", ""));
    int looks = 0;
    const absl::Status status = supervisor.Follow([&looks] {
      if (++looks == 5) ::kill(::getpid(), SIGTERM);
    });
    std::fputs(std::string(status.message()).c_str(), stderr);
    std::_Exit(static_cast<int>(ExitCodeOf(status)));
  };
  EXPECT_EXIT(stop_in_pause(),
              testing::ExitedWithCode(130),
              "the same command resumes the run$");
}

TEST_F(RunSupervisorTest, TheFailureOfRank0HasBeenSeen) {
  const absl::Status status = Follow("exit 4", kGoesOn);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_EQ(status.message(),
            "the trainer ended with code 4; its last lines, above, say why");
}

TEST_F(RunSupervisorTest, ARankThatFailedSaysMoreThanOneThatMissesIt) {
  const std::string go = TempPath("go");
  const std::string waits =
      absl::StrCat("while [ ! -e ", go, " ]; do sleep 0.02; done; ");
  // Both trainers have ended when the supervisor looks at them again.
  const auto end_both = [&] {
    ASSERT_TRUE(WriteFileAtomically(go, "").ok());
    for (const ChildProcess* trainer : trainers_) {
      siginfo_t info = {};
      const auto pid = static_cast<id_t>(trainer->pid());
      ASSERT_EQ(::waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
    }
  };
  const absl::Status status =
      Follow(waits + "exit 75", waits + "echo the cause; exit 1", end_both);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the cause"));
}

}  // namespace
}  // namespace dapd
