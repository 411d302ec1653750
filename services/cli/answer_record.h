// AnswerRecord: a graded answer of `dapd eval`, and its row in the file of
// answers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "common/data/grade_answer.h"
#include "common/generation/decode_request.h"
#include "common/grader/grader_result.h"

namespace dapd {

// The keys that ToJson writes.
inline constexpr std::initializer_list<const char*> kAnswerKeys = {
    "id",
    "index",
    "sample",
    "text",
    "answer",
    "extracted",
    "has_box",
    "correct",
    "score",
    "feedback",
    "ungraded",
    "tokens",
    "finish_reason",
    "repeated"};

struct AnswerRecord {
  int64_t index = 0;   // of the problem in the data, from 0
  int64_t sample = 0;  // number of the answer to the problem, from 0
  std::string id;      // the problem's
  std::string text;
  std::string answer;  // the expected answer
  Grade grade;         // of `text` against it
  // The result of a grader of the user's own, if there is one; it decides
  // grade.correct.
  std::optional<GraderResult> given_grade;
  int64_t tokens = 0;  // its end token included
  FinishReason finish_reason = FinishReason::kNone;
  bool repeated = false;   // EndsInRepetition (common/data/repetition.h)
  bool is_marked = false;  // contains --marker; no part of the row
};

// Returns {"id", "index", "sample", "text", "answer", "extracted", "has_box",
// "correct", "tokens", "finish_reason", "repeated"}, which `dapd grade` reads
// too; with a grader of the user's own also what AddGivenGrade adds.
nlohmann::ordered_json ToJson(const AnswerRecord& record);

// Adds "score" and, unless it is empty, "feedback"; or "ungraded", the reason.
void AddGivenGrade(const GraderResult& grade, nlohmann::ordered_json* row);

// Reads the text and the numbers, from which a report is made; `answer` and
// grade.extracted stay empty. Fails with exit code kData, naming `where`, for
// anything that ToJson does not write.
absl::StatusOr<AnswerRecord> ParseAnswerRecord(const nlohmann::json& row,
                                               const std::string& where);

}  // namespace dapd
