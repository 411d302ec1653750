// WorkerSession: how a role (rollout, teacher) talks to one worker. The pool
// decides when and with what; a session knows the messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/rpc/transfer/policy_update.h"

namespace dapd {

// What came back for a task. An error code tells what to do with the task:
//   INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED   no retry can mend it
//   FAILED_PRECONDITION                             other weights: stale
//   anything else                                   another try may do
template <typename Result>
struct TaskAnswer {
  uint64_t id = 0;
  absl::StatusOr<Result> result;
};

// What a worker says of itself.
struct WorkerGreeting {
  int64_t max_in_flight = 1;  // tasks that it takes at a time, >= 1
  // Of its process, whichever address led there. Empty: it does not say.
  std::string instance;
  // A sentence for the log, which says it once; empty: nothing to remark.
  std::string remark;
};

// One connection to one worker, from connect to loss; a lost worker gets a new
// session. All calls come from one thread except Receive, which a second one
// calls while a stream is open, and Cancel.
//
// Order: Connect; then any number of times Load, OpenStream, Send and Receive,
// HalfClose or AbortStream, CloseStream. Each blocking call has its own
// deadline, or ends by Cancel. FAILED_PRECONDITION from Connect or Load: the
// worker is not what this run needs (another model; a probe that differs).
template <typename Task, typename Result>
class WorkerSession {
 public:
  virtual ~WorkerSession() = default;

  // Asks what the worker is.
  virtual absl::StatusOr<WorkerGreeting> Connect() = 0;

  // Makes the worker serve `update` as its set `set` and compares the probe.
  // Returns the bytes sent.
  virtual absl::StatusOr<uint64_t> Load(WeightSet set,
                                        const PolicyUpdate& update) = 0;

  // The stream for tasks under `updates`, which outlive it. Each was loaded.
  virtual absl::Status OpenStream(const PolicyUpdates& updates) = 0;
  // False if the stream is broken.
  virtual bool Send(const Task& task) = 0;
  // Sends the prefix of a task that this worker will probably get, in place of
  // an earlier one of the same id. Nobody answers it. False if the stream is
  // broken.
  virtual bool SendPrefix(const Task& /*partial*/) { return true; }
  // The task of that prefix will not come.
  virtual bool WithdrawPrefix(uint64_t /*id*/) { return true; }
  // Blocks for the next answer; nothing once the stream has ended.
  virtual std::optional<TaskAnswer<Result>> Receive() = 0;
  // No more Send; the worker ends the stream after its last answer.
  virtual void HalfClose() = 0;
  // Ends the stream at once; what is in flight is lost. The session stays.
  virtual void AbortStream() = 0;
  // Only after Receive returned nothing: how the stream ended.
  virtual absl::Status CloseStream() = 0;

  // From any thread: ends the running call and every later one with an error.
  virtual void Cancel() = 0;
};

}  // namespace dapd
