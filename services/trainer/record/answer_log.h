// answers.jsonl: a few of each step's rollouts (shown_answer.h), a line a step:
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
  int64_t step = 0;  // 0: of no step
  std::vector<ShownAnswer> answers;
};

// Not thread-safe.
class AnswerLog {
 public:
  // Goes on behind the line of `last_step`: those of later steps, which are
  // done again, and one that a crash cut off are dropped. A file that holds
  // anything else is told about and set aside as "<path>.damaged": a run needs
  // none of it. Of the lines before the last one that stays only the step is
  // looked at: those of a long run are gigabytes.
  static absl::StatusOr<AnswerLog> Open(const std::string& path,
                                        int64_t last_step);

  // On disk once it returns; after an error it can be repeated. Nothing for a
  // step without answers.
  absl::Status Append(const StepAnswers& answers);

  // What the newest line held when the file was opened.
  const StepAnswers& last() const { return last_; }

 private:
  AnswerLog(AppendFile file, StepAnswers last)
      : file_(std::move(file)), last_(std::move(last)) {}
  AppendFile file_;
  StepAnswers last_;
};

// For whoever does not hold the run: the line of `step`, or of the newest for
// 0. Of no step if there is none, or no file. A last line without its end is
// one that is being written. DATA_LOSS, naming file and line, for a damaged
// one; lines before the step's are not looked at but for their step, those
// behind it not at all.
absl::StatusOr<StepAnswers> ReadStepAnswers(const std::string& path,
                                            int64_t step);

}  // namespace dapd
