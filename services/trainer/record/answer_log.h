// AnswerLog writes answers.jsonl, which has a few of each step's rollouts
// (shown_answer.h), one line for each step:
//   {"step": 12, "answers": [{"place", "id", "problem", "text", ...}]}
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/append_file.h"
#include "services/trainer/record/shown_answer.h"

namespace dapd {

struct StepAnswers {
  int64_t step = 0;  // 0: there is none
  std::vector<ShownAnswer> answers;
};

// Not thread-safe.
class AnswerLog {
 public:
  // Opens the file to append behind the line of `last_step`: drops the lines of
  // later steps, which are done again, and a line that a crash cut off. A file
  // that holds anything else is renamed to "<path>.damaged", with a warning,
  // since no run needs it. Of the lines before the last kept line only the
  // steps are read: a long run has gigabytes of lines.
  static absl::StatusOr<AnswerLog> Open(const std::string& path,
                                        int64_t last_step);

  // Appends a line, which is on disk once this returns; can be repeated after
  // an error. Does nothing for a step without answers.
  absl::Status Append(const StepAnswers& answers);

  // Returns the newest line at the time when the file was opened.
  const StepAnswers& last() const { return last_; }

 private:
  AnswerLog(AppendFile file, StepAnswers last)
      : file_(std::move(file)), last_(std::move(last)) {}
  AppendFile file_;
  StepAnswers last_;
};

// Reads the line of `step`, or the newest line for 0, while another process may
// write the file. Returns step 0 if there is no such line or no file. A last
// line without its end is ignored as unfinished. DATA_LOSS, naming file and
// line, for a damaged line; of the lines before the step's only the step is
// read, and later lines are not read.
absl::StatusOr<StepAnswers> ReadStepAnswers(const std::string& path,
                                            int64_t step);

}  // namespace dapd
