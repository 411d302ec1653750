// What became of a sample's answers: decoded and graded, what stands in the
// reference's place chosen (answer_rules.h), and what the self-teacher reads
// beside the problem (common/data/self_teacher.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/dataset.h"
#include "common/data/grade_answer.h"
#include "common/data/self_teacher.h"
#include "common/data/view_builder.h"
#include "common/generation/sampling.h"
#include "common/tokenizer/tokenizer.h"
#include "services/trainer/step/answer_rules.h"

namespace dapd {

// What became of one sample's answers; of a problem that needs none, the
// problem alone.
struct RolloutRecord {
  const Problem* problem = nullptr;
  // The rollout, attempt 0; without log-probabilities unless a term weighs by
  // them.
  SampledAnswer answer;
  std::string text;       // of `answer`, special tokens skipped
  Grade grade;            // of `text`; void if the problem has no answer
  bool is_scored = true;  // false: padding alone
  // Whether any term trains the sample: its answer is scored or, by some term,
  // its reference.
  bool is_trained = true;
  // The answer that stands in the reference's place, and its text; empty: the
  // problem's solution does.
  std::vector<int32_t> reference_ids;
  std::string reference;
  bool is_approved = false;    // that answer, by the grader
  bool is_left_out = false;    // there is none that may stand there
  TeacherContext context;      // for sibling_rollout
  int64_t sampled_tokens = 0;  // of all its answers
};

struct RecordOptions {
  // Whether terms train references, also behind an answer of padding alone.
  bool scores_references = false;
  bool keeps_logprobs = false;  // for terms that weigh by them
  bool reads_siblings = false;  // whether terms read sibling_rollout
};

// Thread-safe.
class RecordMaker {
 public:
  // Both must outlive it.
  RecordMaker(const ViewBuilder& views,
              const Tokenizer& tokenizer,
              RecordOptions options)
      : views_(views), tokenizer_(tokenizer), options_(options) {}

  // The records of a group whose answers are all there, whoever collected them:
  // decoded, graded, references and siblings chosen. DATA_LOSS if an answer is
  // missing.
  absl::StatusOr<std::vector<RolloutRecord>> MakeRecords(
      const Problem& problem,
      std::span<const AnswersByAttempt> group,
      const AnswerRules& rules) const;

 private:
  absl::StatusOr<RolloutRecord> MakeRecord(const Problem& problem,
                                           const AnswersByAttempt& answers,
                                           const AnswerRules& rules) const;

  const ViewBuilder& views_;
  const Tokenizer& tokenizer_;
  const RecordOptions options_;
};

}  // namespace dapd
