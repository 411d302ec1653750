// WorkerClient: the trainer's client of all workers of one role; RolloutClient
// and TeacherClient are the two roles.
//
// A task goes to any worker that has room. If this worker dies, hangs or serves
// other weights, another worker computes the task again. Sampling is keyed and
// scoring is deterministic, so none of this changes a result. Results come in
// the order in which they finish: order them by id before anything depends on
// them. common/rpc/pool/worker_pool.h describes the rules.
//
// Thread-safe, but only one thread may call NextWithin() and Next(). Needs
// neither gRPC nor LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/status_macros.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "common/rpc/transfer/policy_update.h"
#include "services/trainer/workers/rollout_task.h"
#include "services/trainer/workers/score_task.h"

namespace dapd {

class RpcCredentials;
class Timeline;

struct WorkerClientOptions {
  std::vector<std::string> addresses;
  ExpectedWorker expected;
  // Null: loopback only.
  std::shared_ptr<const RpcCredentials> credentials;
  absl::Duration task_timeout = absl::Minutes(10);
  absl::Duration peer_timeout = absl::Minutes(5);
  // The connections to each teacher, whose tasks take turns on them. A rollout
  // worker has one connection.
  int64_t connections = 1;
  WorkerPoolObserver observer;
  Timeline* timeline = nullptr;  // must outlive the client; null: none
};

template <typename TaskType, typename ResultType>
class WorkerClient {
 public:
  using Task = TaskType;
  using Result = ResultType;

  virtual ~WorkerClient() = default;

  // Every set of weights that tasks may name from now on. A worker takes no
  // task before it has acknowledged each set and passed its probe; a set that
  // it has acknowledged is not sent again. Tasks without a result are computed
  // again. A teacher always has the base: if the base is given, it is only
  // probed. Does not block.
  virtual void SetWeights(PolicyUpdates updates) = 0;

  // Does not block.
  virtual void Submit(Task task) = 0;

  // Returns the next finished task, or nothing if none finishes within
  // `timeout`. WorkerPool::NextWithin lists the errors.
  virtual absl::StatusOr<std::optional<Result>> NextWithin(
      absl::Duration timeout) = 0;
  // NextWithin without a limit.
  absl::StatusOr<Result> Next() {
    ASSIGN_OR_RETURN(std::optional<Result> result,
                     NextWithin(absl::InfiniteDuration()));
    return *std::move(result);
  }

  virtual std::vector<WorkerState> Workers() const = 0;

  // Ends every wait and connection; joins all threads. The destructor calls it.
  virtual void Shutdown() = 0;
};

// Receives all tokens of a task's answer so far, whenever some arrive. They
// start again if the task is sampled again or by a second worker, too. Comes
// from any thread, one call at a time. Must not block.
using OnTokens =
    std::function<void(uint64_t id, const std::vector<int32_t>& ids)>;

class RolloutClient : public WorkerClient<RolloutTask, RolloutResult> {
 public:
  // Starts to look for workers and returns; a worker that is down is no error.
  // Returns INVALID_ARGUMENT for an address that is neither "host:port" nor
  // "file://PATH".
  static absl::StatusOr<std::unique_ptr<RolloutClient>> Start(
      WorkerClientOptions options);

  // SetWeights for the policy, the only set that rollout workers have.
  void SetPolicy(std::shared_ptr<const PolicyUpdate> policy) {
    SetWeights({{WeightSet::kLive, std::move(policy)}});
  }

  // Replaces the listener; empty: none. When it returns, the listener before
  // gets no more calls.
  virtual void Listen(OnTokens on_tokens) = 0;
};

class TeacherClient : public WorkerClient<ScoreTask, ScoreResult> {
 public:
  // See RolloutClient::Start.
  static absl::StatusOr<std::unique_ptr<TeacherClient>> Start(
      WorkerClientOptions options);

  // Announces the beginnings of the views of a task that will be submitted
  // under the same id; they continue earlier ones. The worker that will get the
  // task may compute them ahead, which changes no result. Does not block.
  virtual void SubmitPrefix(ScoreTask partial) = 0;
  // Says that the task will not be submitted. Does not block.
  virtual void WithdrawPrefix(uint64_t id) = 0;
};

// Returns the task timeout for answers of up to `max_new_tokens`: `usual`, or
// in proportion more beyond 2,400 tokens.
absl::Duration AnswerTimeout(absl::Duration usual, int64_t max_new_tokens);

}  // namespace dapd
