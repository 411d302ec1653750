// GenerationOutbox: the messages that the compute thread has for one Generate
// stream, until the stream's writer takes them.
//
// The compute thread never waits for a slow client: it appends a request's
// tokens to the message that is not yet taken. The stream's reader waits for a
// slow client before it takes another request (HasRoomWithin). So the outbox
// holds at most the tokens of the requests admitted to the stream, and
// kMaxUntaken other messages. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/generation/decode_request.h"
#include "common/rpc/transfer/served_policy.h"
#include "dapd/v1/rollout.pb.h"

namespace dapd {

// When an answer was sampled, and in which slot.
struct SampleTimes {
  absl::Time arrived;  // of the request
  absl::Time started;
  absl::Time first_token;
  absl::Time ended;
  uint32_t slot = 0;
};

class GenerationOutbox {
 public:
  // There is room for more while fewer messages than this wait.
  static constexpr size_t kMaxUntaken = 1024;

  // Admits one more request. Returns false if its id is already open.
  bool Open(uint64_t request_id);

  // Nothing is added for a request that is not open.
  void AddToken(uint64_t request_id,
                uint32_t index,
                int32_t token,
                float logprob);
  void Finish(uint64_t request_id,
              FinishReason finish_reason,
              uint32_t num_tokens,
              const ServedPolicy& policy,
              const SampleTimes& times = {},
              const MemoryCost& cost = {});
  void Fail(uint64_t request_id, const absl::Status& error);

  // No Open follows: the outbox is done once all requests are answered and
  // taken.
  void CloseWhenAnswered();
  // Drops all waiting and future events, because the stream is dead.
  void Abandon();

  // Returns the next message; waits for at most `timeout`. Returns nothing
  // after that, or if done().
  std::optional<v1::GenerateResponse> PopFor(absl::Duration timeout);
  // Returns whether the outbox is closed and drained, or abandoned.
  bool done() const;

  // Waits for at most `timeout` while kMaxUntaken messages are not taken.
  // Returns true as soon as there are fewer, or the stream is dead.
  bool HasRoomWithin(absl::Duration timeout);

 private:
  v1::GenerateResponse& AddMessage(uint64_t request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::set<uint64_t> open_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::GenerateResponse> messages_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dapd
