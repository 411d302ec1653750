// KvBudget limits the KV memory that sequences take together, and keeps how
// much each of them holds. Needs no LibTorch. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "common/generation/decode_request.h"

namespace dapd {

// The use of an engine's KV memory.
struct KvUse {
  int64_t bytes = 0;        // held by the running answers
  int64_t limit_bytes = 0;  // the largest int64_t: no limit
  // Times that an answer gave its memory back and nothing of it was kept.
  int64_t restarts = 0;
  MemoryCost cost;         // of all answers so far
  int64_t host_bytes = 0;  // of the answers that are kept on the host
};

class KvBudget {
 public:
  explicit KvBudget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Raises what `holder` holds to `bytes`; a holder that has more keeps it.
  // Returns false, without a change, if the limit does not allow it.
  bool Raise(uint64_t holder, int64_t bytes);
  // Gives back all that `holder` holds.
  void Release(uint64_t holder);

  // Returns whether the holders may take `bytes` more together.
  bool HasRoomFor(int64_t bytes) const {
    return bytes <= limit_bytes_ - bytes_;
  }
  int64_t held_by(uint64_t holder) const;
  int64_t bytes() const { return bytes_; }
  int64_t limit_bytes() const { return limit_bytes_; }

 private:
  const int64_t limit_bytes_;
  int64_t bytes_ = 0;
  std::map<uint64_t, int64_t> held_;
};

}  // namespace dapd
