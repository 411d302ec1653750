// Options and observable state of a WorkerPool, shared by its clients.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/rpc/pool/address_resolver.h"
#include "common/rpc/pool/backoff.h"
#include "common/rpc/pool/task_durations.h"
#include "common/terms/weight_set.h"

namespace dapd {

// The properties that a worker needs to serve this run: compared with its
// Describe.
struct ExpectedWorker {
  std::string layout_digest;  // ModelWeights::layout_digest
  std::string precision;      // "float32" or "bfloat16"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  // The end tokens of the trainer's model, with which answers end. They are not
  // in Describe, but compared with the answers. Empty: they are not compared.
  std::vector<int64_t> end_ids = {};
  // As in WorkerDescription.
  std::string teacher = {};
  std::string teacher_digest = {};
};

// The outcome of one attempt at a task.
enum class TaskOutcome {
  kAccepted,   // the first valid result
  kDuplicate,  // a result of a task that already had one
  kStale,      // computed with other weights than the current weights
  kLost,       // the worker died, or returned the task
  kTimeout,    // the task's time passed
  kFailed,     // no retry can mend it
  kHedged,     // the slow task was given to a second worker as well
};
// "accepted", "duplicate", ...: the values of the metric's label.
const char* TaskOutcomeName(TaskOutcome outcome);

// A worker's stage in the pool.
enum class WorkerStage {
  kConnecting,  // asked for its description
  kLoading,     // it waits for the current weights, or receives them
  kReady,       // it takes tasks
  kLost,        // it ended, hangs or cannot be used; will be tried again
};
// "connecting", "loading", ...: in messages, the status and metrics.
const char* NameOf(WorkerStage stage);

// The load of a pool.
struct PoolLoad {
  // The workers by stage; the map has every stage.
  std::map<WorkerStage, int64_t> workers = {{WorkerStage::kConnecting, 0},
                                            {WorkerStage::kLoading, 0},
                                            {WorkerStage::kReady, 0},
                                            {WorkerStage::kLost, 0}};
  int64_t pending = 0;  // tasks that no worker has
  int64_t in_flight = 0;
};

// The pool's threads call these functions without the pool's lock. They must be
// thread-safe and must not block. Empty functions are not called.
struct WorkerPoolObserver {
  std::function<void(TaskOutcome outcome)> on_outcome;
  // A worker took the current weights; `bytes` went over the wire.
  std::function<void(double seconds, uint64_t bytes)> on_adapter_pushed;
  // Called after a worker's stage has changed, and ten times a second.
  std::function<void(const PoolLoad& load)> on_load;
};

struct WorkerState {
  std::string address;  // as dialled: "10.0.0.7:7001"
  WorkerStage stage = WorkerStage::kConnecting;
  int64_t policy_version = -1;  // the newest acknowledged; -1: none yet
  std::map<WeightSet, int64_t> weights;  // acknowledged versions, by set
  int64_t in_flight = 0;
  std::string last_error;    // why it was last lost
  std::string teacher = {};  // the further teacher that it serves; empty: none
};

struct WorkerPoolOptions {
  std::string role;     // "rollout" or "teacher", in messages
  std::string teacher;  // the further teacher, in messages; empty: none
  std::vector<std::string> addresses;  // see address_book.h
  absl::Duration task_timeout = absl::Minutes(10);
  absl::Duration peer_timeout = absl::Minutes(5);
  absl::Duration resolve_interval = absl::Seconds(2);
  // A task that was returned without a result this often (it was lost, timed
  // out, refused, or met other weights) fails: it may be killing the workers.
  int max_attempts = 10;
  HedgeOptions hedge;
  BackoffOptions backoff;
  // The function must own everything that it uses: a look-up that hangs
  // outlives the pool.
  AddressResolver resolver = ResolveAddress;
  WorkerPoolObserver observer;
};

// INVALID_ARGUMENT names an address that is neither "host:port" nor
// "file://PATH".
absl::Status CheckWorkerAddresses(const std::vector<std::string>& addresses);

// Returns the newest of `versions`; -1 if there is none.
int64_t NewestVersion(const std::map<WeightSet, int64_t>& versions);

// Returns true for a code that no retry can mend: INVALID_ARGUMENT,
// OUT_OF_RANGE, UNIMPLEMENTED.
bool IsFinalError(const absl::Status& status);

// Returns a worker's error for memory, log and display: cut after 4 KiB, since
// it may quote anything that the worker sent.
absl::Status ShortError(const absl::Status& status);

// Returns the failure (task_failure.h) of a task that a worker refused with
// `status`; names both.
absl::Status DescribeTaskError(const std::string& role,
                               uint64_t task_id,
                               const std::string& address,
                               const absl::Status& status);

// `why`, with the name of its worker.
absl::Status OfWorker(const std::string& role,
                      const std::string& address,
                      const absl::Status& why);

// Returns the log line for a worker that was lost, or could never be used.
std::string DescribeLoss(const std::string& role,
                         const std::string& address,
                         bool was_ready,
                         int64_t returned_tasks,
                         const absl::Status& why);

// Returns one sentence for a pool without a usable worker: each worker with its
// last error, each name that could not be resolved (`resolve_errors`, by
// address), and the remedy.
std::string DescribeWorkers(
    const WorkerPoolOptions& options,
    const std::vector<WorkerState>& states,
    const std::map<std::string, std::string>& resolve_errors);

}  // namespace dapd
