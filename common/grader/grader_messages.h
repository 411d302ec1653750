// The messages between DAPD and a grader of the user's own, as docs/graders.md
// describes them.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "common/grader/grader_result.h"

namespace dapd {

// An answer to be graded.
struct GraderQuestion {
  std::string id;          // unique among the answers that wait for grades
  std::string problem_id;  // id of the problem in the data
  std::string problem;
  std::string reference;  // the solution in the data; empty: none
  std::string expected;   // the expected answer; empty: none
  std::string answer;     // the text to be graded
  std::string row_json;   // the problem's row, a JSON object; empty: unknown
};

// Returns {"id", "problem_id", "problem", "reference", "expected", "answer",
// "row"} in one line; "row" is an object, or null if it is unknown. Ill-formed
// UTF-8 is replaced.
std::string QuestionJson(const GraderQuestion& question);

// Returns {"answers": [...]} with the questions.
std::string QuestionsJson(std::span<const GraderQuestion> questions);

// Reads {"id", "correct" and/or "score", "feedback"}, or {"id", "error"}: the
// grader's reason why it cannot grade the answer (Ungraded::kDeclined). Without
// "correct", scores from kRightScore on are right; without "score", it is 1 or
// 0. Feedback may be missing or null, and is cut to `max_feedback_bytes` at a
// character's end. Returns INVALID_ARGUMENT, which quotes nothing long, for
// anything else, and if the id is not `id`. Other keys are not read.
absl::StatusOr<GraderResult> ParseGraderResult(const nlohmann::json& message,
                                               const std::string& id,
                                               size_t max_feedback_bytes);

}  // namespace dapd
