// WorkerDesk: spreads the requests of `dapd serve` over rollout workers. It
// never changes what a worker serves: it asks each worker for its policy
// (Describe) and requests answers of this policy. So it can share the workers
// of a run with the run's trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

#include "common/generation/decode_request.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {

// The next scores of an answer's prompt, the next tokens of the answer, or its
// end.
struct AnswerEvent {
  size_t answer = 0;  // index of the request in WorkerDesk::Start
  // One for each of the prompt's tokens from the second on
  // (DecodeRequest::score_prompt); all come before the answer's first token.
  std::vector<ScoredToken> prompt_scores;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;  // of each, at temperature 1
  FinishReason finish_reason = FinishReason::kNone;
  // If it is not OK, the answer has ended with it.
  absl::Status error;

  bool ended() const {
    return !error.ok() || finish_reason != FinishReason::kNone;
  }
};

// Answers that one worker samples under one policy. Used by one thread.
class AnswerBatch {
 public:
  // Cancels what has not ended.
  virtual ~AnswerBatch() = default;
  virtual const ServedPolicy& policy() const = 0;
  // Waits for at most `timeout`.
  virtual std::optional<AnswerEvent> NextFor(absl::Duration timeout) = 0;
  // The worker stops to sample this answer; no event of it follows.
  virtual void Cancel(size_t answer) = 0;
};

struct DeskWorker {
  std::string name;  // for messages
  std::shared_ptr<grpc::Channel> channel;
};

// The base model of which the workers must be.
struct DeskModel {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
};

// Thread-safe.
class WorkerDesk {
 public:
  WorkerDesk(std::vector<DeskWorker> workers, const DeskModel& model);
  // All batches must be gone.
  ~WorkerDesk();
  WorkerDesk(const WorkerDesk&) = delete;
  WorkerDesk& operator=(const WorkerDesk&) = delete;

  // Waits until a worker has a free place, in the order of the calls, and lets
  // the worker with the most free places sample the requests, as many side by
  // side as it has places. Returns
  //   UNAVAILABLE        no worker can answer for `patience`; names each worker
  //   CANCELLED          `gives_up` returned true
  //   DEADLINE_EXCEEDED  no place was free until `deadline`
  // Answers that are not complete at the deadline end with DEADLINE_EXCEEDED.
  // An answer whose worker changes its policy ends with FAILED_PRECONDITION.
  absl::StatusOr<std::unique_ptr<AnswerBatch>> Start(
      std::vector<DecodeRequest> requests,
      absl::Time deadline,
      absl::Duration patience,
      const std::function<bool()>& gives_up);

  // Returns UNAVAILABLE, naming each worker, if no worker can answer.
  absl::Status Usable() const;

 private:
  struct State;
  void Look(size_t worker);

  const std::shared_ptr<State> state_;
  std::vector<std::jthread> lookers_;
};

}  // namespace dapd
