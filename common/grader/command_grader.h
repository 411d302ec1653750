// CommandGrader: grades answers by a program (grader.command) that reads one
// question a line and writes one grade a line (grader_messages.h).
//
// The program runs until this object ends, and grades one answer after another.
// A program that ends, takes longer than grader.timeout_seconds, takes more
// memory, or writes too much or anything but the grade is killed, with every
// process of its group, and a new one is started; the answer is tried once
// more. Between failures in a row the pause before a start grows from 0.1 to 2
// seconds. Its stderr goes to the log, the first kMaxLoggedLines lines of all
// programs of this object together.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/line_process.h"
#include "common/config/config.h"
#include "common/grader/answer_grading.h"

namespace dapd {

inline constexpr int kMaxLoggedLines = 100;

class CommandGrader final : public AnswerGrading {
 public:
  // Starts nothing yet. `gives_up` must be quick and thread-safe.
  CommandGrader(GraderSection options, std::function<bool()> gives_up);

  size_t max_questions() const override { return 1; }
  std::vector<GraderResult> Grade(
      std::span<const GraderQuestion> questions) override;

 private:
  GraderResult GradeOne(const GraderQuestion& question);
  absl::StatusOr<GraderResult> Try(const GraderQuestion& question);
  // Starts the program unless it runs, after a pause if the last ones failed.
  absl::Status EnsureRunning();

  const GraderSection options_;
  const std::function<bool()> gives_up_;
  LineProcess process_;
  int failures_ = 0;  // in a row
};

// Returns an error with exit code kConfig if PATH, or the path of
// grader.command, has no such program.
absl::Status CheckGraderCommand(const std::vector<std::string>& command);

}  // namespace dapd
