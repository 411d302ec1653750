// TeacherClient: the trainer's client of all teacher workers. As RolloutClient,
// with views to score in place of prompts.
//
// Thread-safe. NextWithin() and Next() are meant for one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/rpc/pool/worker_pool_options.h"
#include "common/rpc/transfer/policy_update.h"
#include "services/trainer/workers/score_task.h"

namespace dapd {

class RpcCredentials;
class Timeline;

struct TeacherClientOptions {
  std::vector<std::string> addresses;
  ExpectedWorker expected;
  // None: loopback only.
  std::shared_ptr<const RpcCredentials> credentials;
  absl::Duration task_timeout = absl::Minutes(10);
  absl::Duration peer_timeout = absl::Minutes(5);
  int64_t connections = 1;  // to each worker; tasks take turns on them
  WorkerPoolObserver observer;
  Timeline* timeline = nullptr;  // that outlives the client; null: none
};

class TeacherClient {
 public:
  static absl::StatusOr<std::unique_ptr<TeacherClient>> Start(
      TeacherClientOptions options);
  virtual ~TeacherClient() = default;

  // All sets of weights that tasks may be for, but the base, which is always
  // there (given all the same, it is only probed). Workers take no task, not
  // even for the base, before they acknowledged each of them. What a worker
  // acknowledged before is not sent again. Tasks without a result are scored
  // again.
  virtual void SetWeights(PolicyUpdates updates) = 0;

  // Does not block.
  virtual void Submit(ScoreTask task) = 0;

  // What is known of a task that will be submitted under the same id: the
  // prefixes of its views, in place of earlier ones, which these continue. The
  // worker that is to get the task may compute them ahead; results stay the
  // same. Does not block.
  virtual void SubmitPrefix(ScoreTask partial) = 0;
  // The task will not be submitted. Does not block.
  virtual void WithdrawPrefix(uint64_t id) = 0;

  // As of RolloutClient.
  virtual absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration timeout) = 0;
  absl::StatusOr<ScoreResult> Next();

  virtual std::vector<WorkerState> Workers() const = 0;
  virtual void Shutdown() = 0;
};

}  // namespace dapd
