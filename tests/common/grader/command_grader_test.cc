#include "common/grader/command_grader.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/steady_time.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

bool Never() { return false; }

// A grader whose answers are programs for it: it executes the answer with the
// question `q` and a function `say`, and notes in a file that it was started.
GraderSection ObedientGrader(const std::string& starts) {
  const std::string program = absl::StrCat(R"(
import json, os, sys, time, resource
open(")",
                                           starts,
                                           R"(", "a").write("start\n")
def say(**grade):
    print(json.dumps(grade), flush=True)
for line in sys.stdin:
    q = json.loads(line)
    exec(q["answer"])
)");
  return {.command = {"python3", "-c", program}};
}

class CommandGraderTest : public ::testing::Test {
 protected:
  int Starts() const {
    const auto text = ReadFile(starts_, 1 << 20);
    return text.ok()
               ? static_cast<int>(std::count(text->begin(), text->end(), '\n'))
               : 0;
  }
  GraderResult Grade(CommandGrader& grader, const std::string& program) {
    const GraderQuestion question = {
        .id = absl::StrCat(++last_id_), .problem_id = "p", .answer = program};
    return grader.Grade({&question, 1}).at(0);
  }

  const std::string starts_ = TempPath("starts");
  GraderSection options_ = ObedientGrader(starts_);
  int last_id_ = 0;
};

constexpr char kRight[] = "say(id=q['id'], correct=True, feedback='well done')";

TEST_F(CommandGraderTest, OneProgramGradesAllAnswers) {
  CommandGrader grader(options_, Never);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(
        Grade(grader, kRight),
        (GraderResult{.correct = true, .score = 1.0, .feedback = "well done"}));
  }
  EXPECT_EQ(Grade(grader, "say(id=q['id'], score=0.25)"),
            (GraderResult{.correct = false, .score = 0.25}));
  EXPECT_EQ(Starts(), 1);
}

TEST_F(CommandGraderTest, EachKindOfFailureIsTriedOnceMoreAndSaid) {
  options_.timeout_seconds = 1.5;
  options_.max_output_bytes = 1 << 16;
  for (const auto& [program, reason, error] :
       {std::tuple("os._exit(3)", Ungraded::kEnded, "ended with exit code 3"),
        std::tuple("os.kill(os.getpid(), 9)",
                   Ungraded::kEnded,
                   "was ended by signal 9"),
        std::tuple("time.sleep(60)", Ungraded::kTimeout, "in time"),
        std::tuple("print('no JSON', flush=True)",
                   Ungraded::kNonsense,
                   "wrote no JSON: no JSON"),
        std::tuple(
            "say(id='x', correct=True)", Ungraded::kNonsense, "'id' is not"),
        std::tuple("print('x' * (1 << 22), flush=True)",
                   Ungraded::kTooLong,
                   "more than 65536 bytes")}) {
    const int before = Starts();
    CommandGrader grader(options_, Never);
    const GraderResult result = Grade(grader, program);
    EXPECT_EQ(result.ungraded, reason) << program;
    EXPECT_FALSE(result.correct);
    EXPECT_THAT(result.error, HasSubstr(error)) << program;
    EXPECT_EQ(Starts() - before, 2) << program;
    // The next answer finds a new program.
    EXPECT_TRUE(Grade(grader, kRight).correct) << program;
  }
}

TEST_F(CommandGraderTest, AFailureThatPassesIsNoFailure) {
  CommandGrader grader(options_, Never);
  const std::string once = absl::StrCat("f = '",
                                        TempPath("once"),
                                        "'\nif not os.path.exists(f):\n"
                                        "    open(f, 'w'); os._exit(1)\n",
                                        kRight);
  EXPECT_TRUE(Grade(grader, once).correct);
  EXPECT_EQ(Starts(), 2);
}

TEST_F(CommandGraderTest, TheMemoryOfTheProgramIsBounded) {
  options_.memory_mib = 512;
  CommandGrader grader(options_, Never);
  EXPECT_EQ(Grade(grader,
                  "try:\n    b = bytearray(1 << 30)\n    s = 0\n"
                  "except MemoryError:\n    s = 1\n"
                  "say(id=q['id'], score=s)")
                .score,
            1.0);
  EXPECT_EQ(
      Grade(grader,
            "say(id=q['id'], "
            "score=float(resource.getrlimit(resource.RLIMIT_CORE)[0] == 0))")
          .score,
      1.0);
}

TEST_F(CommandGraderTest, WhatAFailedProgramStartedEndsWithIt) {
  CommandGrader grader(options_, Never);
  const std::string pid = TempPath("pid");
  EXPECT_EQ(Grade(grader,
                  absl::StrCat("p = os.fork()\n"
                               "if p == 0:\n    time.sleep(600)\n"
                               "open('",
                               pid,
                               "', 'w').write(str(p))\nos._exit(1)"))
                .ungraded,
            Ungraded::kEnded);
  const int child = std::atoi(ReadFile(pid, 100).value().c_str());
  ASSERT_GT(child, 1);
  // The kill is sent; the kernel may take a moment, and nobody here can reap.
  const absl::Time deadline = SteadyNow() + absl::Seconds(20);
  const auto is_running = [&] {
    const auto state = ReadFile(absl::StrCat("/proc/", child, "/stat"), 4096);
    return state.ok() && state->find(") Z ") == std::string::npos;
  };
  while (is_running() && SteadyNow() < deadline) {
  }
  EXPECT_FALSE(is_running());
}

TEST_F(CommandGraderTest, StderrGoesToTheLogWithinBounds) {
  ::testing::internal::CaptureStderr();
  {
    CommandGrader grader(options_, Never);
    EXPECT_TRUE(Grade(grader,
                      absl::StrCat("for i in range(5000):\n"
                                   "    print('line', i, 'x' * 5000, "
                                   "file=sys.stderr)\n",
                                   kRight))
                    .correct);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              AllOf(HasSubstr("the grader says: line 99 "),
                    HasSubstr("writes more to its stderr"),
                    Not(HasSubstr("line 100 "))));
  EXPECT_LT(log.size(), 200000);
}

TEST_F(CommandGraderTest, AStopEndsTheWait) {
  std::atomic<bool> stops = false;
  CommandGrader grader(options_, [&] { return stops.load(); });
  EXPECT_TRUE(Grade(grader, kRight).correct);
  std::jthread stopper([&] {
    while (Starts() == 0) {
    }
    stops = true;
  });
  const absl::Time start = SteadyNow();
  EXPECT_TRUE(Grade(grader, "time.sleep(600)").ungraded.has_value());
  EXPECT_LT(SteadyNow() - start, absl::Seconds(30));
}

TEST(CheckGraderCommandTest, NamesAProgramThatIsNotThere) {
  EXPECT_TRUE(CheckGraderCommand({"python3", "x"}).ok());
  EXPECT_TRUE(CheckGraderCommand({"/bin/sh"}).ok());
  for (const auto& [program, why] :
       {std::pair("no-such-program", "no program 'no-such-program' in PATH"),
        std::pair("python3 grade.py", "are entries of a list"),
        std::pair("/etc/passwd", "not a file that can be executed"),
        std::pair("/bin", "not a file that can be executed")}) {
    const absl::Status status = CheckGraderCommand({program});
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig) << program;
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
}

}  // namespace
}  // namespace dapd
