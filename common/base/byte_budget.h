// ByteBudget: how many bytes of something optional may be kept at once. Counts,
// allocates nothing. Not thread-safe.
#pragma once

#include <cstdint>

namespace dapd {

class ByteBudget {
 public:
  explicit ByteBudget(int64_t max_bytes) : left_(max_bytes) {}

  int64_t left() const { return left_; }

  // Whether there was room for `bytes` more, which are taken then.
  bool Take(int64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  // Gives back what was taken.
  void Give(int64_t bytes) { left_ += bytes; }

 private:
  int64_t left_;
};

}  // namespace dapd
