// math-verify as a grader: a supervised Python process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "services/cli/answer_grader.h"

namespace dapd {

// The text of math_verify_grader.py.
extern const char kMathVerifyScript[];

struct MathVerifyOptions {
  // Runs the script; tests run other programs.
  std::vector<std::string> command;
  absl::Duration start_timeout = absl::Minutes(2);
  absl::Duration answer_timeout = absl::Seconds(30);
  // How often a process that died or hung is replaced.
  int64_t restarts = 100;
};

// Returns the command that runs the script in `python`, which FindPython finds.
std::vector<std::string> MathVerifyCommand(const std::string& python);

// Starts the process. An answer on which the process dies, or that takes longer
// than answer_timeout, counts as not correct, with that error; the next answer
// gets a new process. Returns FAILED_PRECONDITION if math-verify cannot be
// imported; UNAVAILABLE if the process does not start, or after too many
// restarts.
absl::StatusOr<std::unique_ptr<AnswerGrader>> StartMathVerify(
    MathVerifyOptions options);

}  // namespace dapd
