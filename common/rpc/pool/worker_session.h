// WorkerSession: the conversation of a role (rollout, teacher) with one worker.
// The pool decides when to send which task; a session knows the messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/rpc/transfer/policy_update.h"

namespace dapd {

// A worker's answer to a task. An error code decides about the task:
//   INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED   no retry can mend it
//   FAILED_PRECONDITION                             other weights: stale
//   anything else                                   another try may succeed
template <typename Result>
struct TaskAnswer {
  uint64_t id = 0;
  absl::StatusOr<Result> result;
};

// A worker's description of itself.
struct WorkerGreeting {
  int64_t max_in_flight = 1;  // tasks that it takes at a time, >= 1
  // The name of its process, for every address. Empty: it names none.
  std::string instance;
  // A sentence that is logged once; empty: none.
  std::string remark;
};

// One connection to one worker, from connect to loss; a lost worker gets a new
// session. One thread makes all calls except Cancel, which any thread may call,
// and Receive, which a second thread calls while a stream is open.
//
// Order: Connect; then any number of times Load, OpenStream, Send and Receive,
// HalfClose or AbortStream, CloseStream. Each blocking call has its own
// deadline, or ends by Cancel. FAILED_PRECONDITION from Connect or Load: the
// worker is not what this run needs (another model; a probe that differs).
template <typename Task, typename Result>
class WorkerSession {
 public:
  virtual ~WorkerSession() = default;

  // Asks the worker for its description.
  virtual absl::StatusOr<WorkerGreeting> Connect() = 0;

  // Makes the worker serve `update` as its set `set` and compares the probe.
  // Returns the bytes sent.
  virtual absl::StatusOr<uint64_t> Load(WeightSet set,
                                        const PolicyUpdate& update) = 0;

  // Opens the stream for tasks under `updates`, which outlive it and have all
  // been loaded.
  virtual absl::Status OpenStream(const PolicyUpdates& updates) = 0;
  // Returns false if the stream is broken.
  virtual bool Send(const Task& task) = 0;
  // Sends the prefix of a task that this worker will probably get; it replaces
  // an earlier prefix of the same id and has no answer. False if the stream is
  // broken.
  virtual bool SendPrefix(const Task& /*partial*/) { return true; }
  // Says that the task of this prefix will not follow.
  virtual bool WithdrawPrefix(uint64_t /*id*/) { return true; }
  // Blocks for the next answer; returns nothing once the stream has ended.
  virtual std::optional<TaskAnswer<Result>> Receive() = 0;
  // No Send follows; the worker ends the stream after its last answer.
  virtual void HalfClose() = 0;
  // Ends the stream at once; tasks in flight are lost. The session stays.
  virtual void AbortStream() = 0;
  // Returns how the stream ended; must be called only after Receive has
  // returned nothing.
  virtual absl::Status CloseStream() = 0;

  // May be called from any thread: the running call and every later call end
  // with an error.
  virtual void Cancel() = 0;
};

}  // namespace dapd
