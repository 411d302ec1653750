// GenerationOutbox: the events of one Generate stream on their way from the
// compute thread to the stream's writer.
//
// The compute thread never waits for a slow client: it appends tokens to the
// request's tokens that wait already. Instead, the stream's reader waits before
// it takes another request (HasRoomWithin). So the outbox holds at most the
// tokens of the stream's admitted requests, and kMaxUntaken other events.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/generation/decode_request.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {

// When an answer was sampled, and in which slot.
struct SampleTimes {
  absl::Time arrived;  // of the request
  absl::Time started;
  absl::Time first_token;
  absl::Time ended;
  uint32_t slot = 0;
};

struct GenerationEvent {
  enum class Kind { kTokens, kFinished, kFailed };
  uint64_t request_id = 0;
  Kind kind = Kind::kTokens;
  // kTokens
  uint32_t first_index = 0;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  // kFinished
  FinishReason finish_reason = FinishReason::kNone;
  uint32_t num_tokens = 0;
  ServedPolicy policy;
  SampleTimes times;
  // kFailed
  absl::Status error;
};

class GenerationOutbox {
 public:
  // The reader has room for a request while fewer events wait.
  static constexpr size_t kMaxUntaken = 1024;

  // Admits one more request. False if its id is already open.
  bool Open(uint64_t request_id);

  // Events of an open request. Events of other requests are dropped.
  void AddToken(uint64_t request_id,
                uint32_t index,
                int32_t token,
                float logprob);
  void Finish(uint64_t request_id,
              FinishReason finish_reason,
              uint32_t num_tokens,
              const ServedPolicy& policy,
              const SampleTimes& times = {});
  void Fail(uint64_t request_id, const absl::Status& error);

  // No Open follows: the outbox is done once all requests are answered and
  // taken.
  void CloseWhenAnswered();
  // The stream is dead: drops all waiting and future events.
  void Abandon();

  // The next event; waits for at most `timeout`. Nothing if none came, or if
  // done().
  std::optional<GenerationEvent> PopFor(absl::Duration timeout);
  // Whether it is closed and empty, or abandoned.
  bool done() const;

  // Waits for at most `timeout` while kMaxUntaken events wait. True as soon as
  // fewer wait, or the stream is dead.
  bool HasRoomWithin(absl::Duration timeout);

 private:
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::set<uint64_t> open_ ABSL_GUARDED_BY(mutex_);
  std::deque<GenerationEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dapd
