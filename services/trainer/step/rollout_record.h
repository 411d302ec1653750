// RolloutRecord: a sample with its answers decoded and graded, by the built-in
// grader or as a grader of the user's own said (common/grader/grading_desk.h),
// with the choice for the reference's place (answer_rules.h), and with the text
// that the self-teacher reads beside the problem (common/data/self_teacher.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/dataset.h"
#include "common/data/grade_answer.h"
#include "common/data/self_teacher.h"
#include "common/data/view_builder.h"
#include "common/generation/sampling.h"
#include "common/grader/grader_messages.h"
#include "common/grader/grader_result.h"
#include "common/tokenizer/tokenizer.h"
#include "services/trainer/step/answer_rules.h"

namespace dapd {

// One sample of a batch. If it needs no answers, only `problem` is set.
struct RolloutRecord {
  const Problem* problem = nullptr;
  // The rollout, attempt 0; without log-probabilities unless a term weighs by
  // them.
  SampledAnswer answer;
  std::string text;  // of `answer`, special tokens skipped
  Grade grade;       // of `text`; void unless IsGraded
  // The result of a grader of the user's own; it decides grade.correct.
  std::optional<GraderResult> given_grade;
  bool is_scored = true;  // false: padding alone
  // Whether any term trains the sample: a term scores its answer or its
  // reference.
  bool is_trained = true;
  // The answer that stands in the reference's place, and its text; empty: the
  // reference is the problem's solution.
  std::vector<int32_t> reference_ids;
  std::string reference;
  bool is_approved = false;    // the grader approves reference_ids
  bool is_left_out = false;    // no answer may stand in the reference's place
  TeacherContext context;      // for sibling_rollout
  int64_t sampled_tokens = 0;  // of all its answers
};

// Returns whether the answer has a grade: a grader of the user's own has graded
// it or, without one, the problem has an expected answer.
bool IsGraded(const RolloutRecord& record);

struct RecordOptions {
  // Whether terms train references, even behind an answer of padding alone.
  bool scores_references = false;
  bool keeps_logprobs = false;  // for terms that weigh by them
  bool reads_siblings = false;  // whether terms read sibling_rollout
  // Whether a grader of the user's own grades; RolloutResult::grade then has
  // what it said.
  bool has_grader = false;
};

// Thread-safe.
class RecordMaker {
 public:
  // Both must outlive it.
  RecordMaker(const ViewBuilder& views,
              const Tokenizer& tokenizer,
              RecordOptions options)
      : views_(views), tokenizer_(tokenizer), options_(options) {}

  // Returns the question about an answer for a grader of the user's own.
  absl::StatusOr<GraderQuestion> MakeQuestion(
      const Problem& problem,
      int64_t attempt,
      const RolloutResult& answer) const;

  // Returns the records of a group whose answers are all there, whichever rank
  // collected them: decodes and grades the answers, chooses references and
  // siblings. Returns DATA_LOSS if an answer is missing.
  absl::StatusOr<std::vector<RolloutRecord>> MakeRecords(
      const Problem& problem,
      std::span<const AnswersByAttempt> group,
      const AnswerRules& rules) const;

 private:
  // Returns the text of an answer that is graded.
  absl::StatusOr<std::string> TextOf(int64_t attempt,
                                     const RolloutResult& answer) const;
  // Returns whether a candidate, whose text is `text`, is right.
  bool IsRight(const RolloutResult& answer,
               const std::string& text,
               const std::string& expected) const;
  absl::StatusOr<RolloutRecord> MakeRecord(const Problem& problem,
                                           const AnswersByAttempt& answers,
                                           const AnswerRules& rules) const;

  const ViewBuilder& views_;
  const Tokenizer& tokenizer_;
  const RecordOptions options_;
};

}  // namespace dapd
