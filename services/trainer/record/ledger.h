// Ledger: the run's history in `ledger.jsonl`, one durable line for each event.
//
//   {"event":"started","attempt":2,"step":50,"adapter_digest":...,"version":...}
//   {"event":"accepted","step":51,"sample":3,"id":...,"policy_version":50,
//    "adapter_digest":...,"rollout_ids":[...],"logprobs":...,
//    "finish_reason":"eos"}
//   {"event":"graded","step":51,"sample":3,"correct":true,"score":0.9,
//    "feedback":...}
//   {"event":"held_out_graded","step":50,"sample":7,"answer":...,"correct":...}
//   {"event":"trained","step":51,"adapter_digest":...,"samples":[0,1,...]}
//   {"event":"checkpointed","step":100,"adapter_digest":...}
//   {"event":"finished","step":200,"adapter_digest":...}
//
// "logprobs" are the sampler's log-probabilities, one for each token: float32,
// little-endian, in base64; ledgers of earlier versions have none. An answer
// that is not its sample's first has its "attempt" (answer_rules.h) behind
// "sample". "graded" is what a grader of the user's own said about an answer
// that was accepted before; or it has "ungraded", the reason
// (common/grader/grader_result.h), instead of a score. "held_out_graded" is the
// same for a held-out answer of the policy after `step`; "answer" is the
// SHA-256 of its tokens. Each line ends in a CRC-32C of the text before it.
//
// An event is on disk before anything follows from it: an accepted answer is
// never sampled again, and a graded answer never graded again, whichever
// process dies. "started" voids the events of later steps in earlier attempts:
// these steps are done again, to the same result. tests/robustness/history.py
// checks a ledger against a model of the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/append_file.h"
#include "services/trainer/step/answer_rules.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

// Not thread-safe: used by the compute thread or, while that trains, by the
// thread that collects answers (answer_exchange.h).
class Ledger {
 public:
  // Opens or creates `path`. Cuts off a last line that a crash left unfinished.
  // With a damaged line before it, renames the file to "<path>.damaged", with a
  // warning, and begins an empty one; answers are then sampled again. A file
  // that cannot be read stays, and its error is returned. The checksum of every
  // line is verified, but an answer is parsed only if a resume may still need
  // it.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& path);

  // Begins an attempt at the step after `step`.
  absl::Status Started(int64_t step, const std::string& adapter_digest);

  // Appends an answer of `step`, unless Recall returns it.
  absl::Status Accepted(int64_t step,
                        const AnswerPlace& place,
                        const std::string& problem_id,
                        const RolloutResult& result);

  // Appends the grade of an accepted answer of `step`, `result.grade`, unless
  // Recall returns it with one.
  absl::Status Graded(int64_t step,
                      const AnswerPlace& place,
                      const std::string& problem_id,
                      const RolloutResult& result);

  // Appends the grade of a held-out answer, `result.grade`, of policy
  // `version`; `index`: of the answer in the evaluation.
  absl::Status HeldOutGraded(int64_t version,
                             int64_t index,
                             const RolloutResult& result);

  // Returns the grade that an earlier attempt appended for exactly this answer;
  // nothing if there is none.
  std::optional<GraderResult> RecallHeldOutGrade(
      int64_t version, int64_t index, const std::vector<int32_t>& ids) const;

  // Returns the answer that an earlier attempt accepted at this place under
  // exactly this policy, with its grade if it has one; null if there is no such
  // answer. Valid until Reached("trained",
  // step).
  const RolloutResult* Recall(int64_t step,
                              const AnswerPlace& place,
                              const std::string& problem_id,
                              int64_t policy_version,
                              const std::string& adapter_digest) const;

  // `event`: "trained" (`samples` of the batch), "checkpointed" or "finished",
  // with the digest of the live adapter after it.
  absl::Status Reached(const std::string& event,
                       int64_t step,
                       const std::string& adapter_digest,
                       const std::vector<int64_t>& samples = {});

  // Returns the number of the attempt, from 1; 0 before Started.
  int64_t attempt() const { return attempt_; }

 private:
  struct Answer {
    std::string problem_id;
    RolloutResult result;
  };
  struct Line {
    std::string text;    // without its '\n'
    int64_t number = 0;  // from 1
  };
  using AnswerKey = std::pair<int64_t, AnswerPlace>;  // step, place
  explicit Ledger(AppendFile file) : file_(std::move(file)) {}
  absl::Status Append(const nlohmann::ordered_json& event);
  absl::Status Read();
  // Keeps an answer's line in unread_; replays any other line.
  absl::Status TakeLine(Line line);
  absl::Status Replay(const Line& line);

  AppendFile file_;
  int64_t attempt_ = 0;
  int64_t checkpoint_before_ = 0;
  std::map<AnswerKey, Answer> answers_;
  struct HeldOutGrade {
    std::string answer;  // digest
    GraderResult grade;
  };
  std::map<AnswerKey, HeldOutGrade> held_out_grades_;
  // Answers, and their grades, while the file is read.
  std::map<AnswerKey, Line> unread_;
  std::map<AnswerKey, Line> unread_grades_;
  std::map<AnswerKey, Line> unread_held_out_grades_;
};

}  // namespace dapd
