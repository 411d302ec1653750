// RolloutClient: the trainer's client of all rollout workers.
//
// Tasks go to whichever worker has room; a task of a worker that dies, hangs
// or serves other weights is done again elsewhere. Because sampling is keyed,
// none of this changes a result. Results come in the order in which they
// finish: order them by id before anything depends on them.
//
// Thread-safe. NextWithin() and Next() are meant for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/rpc/pool/worker_pool_options.h"
#include "common/rpc/transfer/policy_update.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

class RpcCredentials;
class Timeline;

// Called with the tokens of a task's answer so far, as they come; from the
// start again if the task is done again or by a second worker, too. From any
// thread, one call at a time. Must not block.
using OnTokens =
    std::function<void(uint64_t id, const std::vector<int32_t>& ids)>;

// What a worker has for an answer of up to `max_new_tokens`: `usual`; beyond
// 2,400 tokens longer in proportion.
absl::Duration AnswerTimeout(absl::Duration usual, int64_t max_new_tokens);

struct RolloutClientOptions {
  std::vector<std::string> addresses;
  ExpectedWorker expected;
  // None: loopback only.
  std::shared_ptr<const RpcCredentials> credentials;
  absl::Duration task_timeout = absl::Minutes(10);
  absl::Duration peer_timeout = absl::Minutes(5);
  WorkerPoolObserver observer;
  Timeline* timeline = nullptr;  // that outlives the client; null: none
};

class RolloutClient {
 public:
  // Starts to look for workers and returns; a worker that is down is no error
  // here. INVALID_ARGUMENT for an address that is neither "host:port" nor
  // "file://PATH".
  static absl::StatusOr<std::unique_ptr<RolloutClient>> Start(
      RolloutClientOptions options);
  virtual ~RolloutClient() = default;

  // The policy that samples from now on. Workers take no task before they
  // acknowledged it and passed its probe. Tasks without a result are sampled
  // again under it. Does not block.
  virtual void SetPolicy(std::shared_ptr<const PolicyUpdate> policy) = 0;

  // Who is told of tokens; empty: nobody. Returns when nobody else is told any
  // more.
  virtual void Listen(OnTokens on_tokens) = 0;

  // Does not block.
  virtual void Submit(RolloutTask task) = 0;

  // The next finished task, or nothing if none is finished within `timeout`.
  // Ends with
  //   UNAVAILABLE          no usable worker for peer_timeout; names each one
  //                        and its last error (a later call may succeed)
  //   FAILED_PRECONDITION  every worker found serves something else (another
  //                        model, precision, or weights by its probe), or
  //                        nothing was submitted
  //   another code         a task that no retry can mend; names it
  //   CANCELLED            Shutdown was called
  virtual absl::StatusOr<std::optional<RolloutResult>> NextWithin(
      absl::Duration timeout) = 0;
  // The same without a limit.
  absl::StatusOr<RolloutResult> Next();

  virtual std::vector<WorkerState> Workers() const = 0;

  // Ends every wait and connection; joins all threads. The destructor does it
  // too.
  virtual void Shutdown() = 0;
};

}  // namespace dapd
