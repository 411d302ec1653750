// Ledger: the run's history, one durable record an event, in `ledger.jsonl`.
//
//   {"event":"started","attempt":2,"step":50,"adapter_digest":...,"version":...}
//   {"event":"accepted","step":51,"sample":3,"id":...,"policy_version":50,
//    "adapter_digest":...,"rollout_ids":[...],"logprobs":...,
//    "finish_reason":"eos"}
//   {"event":"trained","step":51,"adapter_digest":...,"samples":[0,1,...]}
//   {"event":"checkpointed","step":100,"adapter_digest":...}
//   {"event":"finished","step":200,"adapter_digest":...}
//
// "logprobs" are the sampler's, one per token: float32, little-endian, in
// base64. A ledger of an earlier version has none. An answer that is not its
// sample's first has an "attempt" (answer_rules.h) behind "sample".
// Each line ends in a CRC-32C of what stands before it. An event is on disk
// before anything follows from it: an answer that was accepted is never sampled
// again, whatever dies. "started" voids what earlier attempts say about steps
// after its own: they are done again, to the same result.
// tests/robustness/history.py checks a ledger against a model of the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/append_file.h"
#include "services/trainer/step/answer_place.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

// Not thread-safe. The compute thread has it, or, while that trains, the thread
// that collects answers (answer_exchange.h).
class Ledger {
 public:
  // Opens or creates `path`. A last line that a crash left unfinished is cut
  // off. A damaged line before it: the file is kept aside as
  // "<path>.damaged", with a warning, and an empty one begun; answers are then
  // sampled again. One that cannot be read stays, and its error is returned.
  // Every line's checksum is looked at, but an answer is parsed only if a
  // resume may still need it.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& path);

  // Begins an attempt at the step after `step`.
  absl::Status Started(int64_t step, const std::string& adapter_digest);

  // An answer of `step` is there. What Recall returned is not recorded again.
  absl::Status Accepted(int64_t step,
                        const AnswerPlace& place,
                        const std::string& problem_id,
                        const RolloutResult& result);

  // The answer that an earlier run of the step accepted there under exactly
  // this policy; null if there is none. Valid until Reached("trained", step).
  const RolloutResult* Recall(int64_t step,
                              const AnswerPlace& place,
                              const std::string& problem_id,
                              int64_t policy_version,
                              const std::string& adapter_digest) const;

  // `event`: "trained" (`samples` of the batch), "checkpointed" or "finished",
  // with the live adapter after it.
  absl::Status Reached(const std::string& event,
                       int64_t step,
                       const std::string& adapter_digest,
                       const std::vector<int64_t>& samples = {});

  // From 1; 0 before Started.
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
  using AnswerKey = std::pair<int64_t, AnswerPlace>;  // by step
  explicit Ledger(AppendFile file) : file_(std::move(file)) {}
  absl::Status Append(const nlohmann::ordered_json& event);
  absl::Status Read();
  // An answer's line is set by in unread_, any other replayed.
  absl::Status TakeLine(Line line);
  absl::Status Replay(const Line& line);

  AppendFile file_;
  int64_t attempt_ = 0;
  int64_t checkpoint_before_ = 0;
  std::map<AnswerKey, Answer> answers_;
  std::map<AnswerKey, Line> unread_;  // while the file is read
};

}  // namespace dapd
