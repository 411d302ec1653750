// KvBudget: how much KV memory sequences may take together, and how much each
// of them holds. Needs no LibTorch. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

namespace dapd {

// What an engine has done with its KV memory.
struct KvUse {
  int64_t bytes = 0;        // held by the answers that run
  int64_t limit_bytes = 0;  // the largest int64_t: as much as there is
  int64_t restarts = 0;     // times that an answer had to give its memory back
};

class KvBudget {
 public:
  explicit KvBudget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Raises what `holder` holds to `bytes`; it keeps more if it has more. False
  // if the limit does not allow it: nothing changes.
  bool Raise(uint64_t holder, int64_t bytes);
  // Gives back all that `holder` holds.
  void Release(uint64_t holder);

  // Whether holders may take so much more together.
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
