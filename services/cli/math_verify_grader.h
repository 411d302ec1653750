// math-verify as a grader: a Python process that is watched.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "services/cli/answer_grader.h"

namespace dapd {

// math_verify_grader.py.
extern const char kMathVerifyScript[];

struct MathVerifyOptions {
  // Runs the script; tests run others.
  std::vector<std::string> command;
  absl::Duration start_timeout = absl::Minutes(2);
  absl::Duration answer_timeout = absl::Seconds(30);
  // How often a process that died or hung is replaced.
  int64_t restarts = 100;
};

// The script in the Python that FindPython finds.
std::vector<std::string> MathVerifyCommand(const std::string& python);

// Starts the process. An answer on which it dies, or that takes longer than
// answer_timeout, is not correct and says why; the next one gets a new process.
// FAILED_PRECONDITION if math-verify cannot be imported; UNAVAILABLE if the
// process does not start, or after too many restarts.
absl::StatusOr<std::unique_ptr<AnswerGrader>> StartMathVerify(
    MathVerifyOptions options);

}  // namespace dapd
