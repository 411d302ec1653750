// ByteBudget: counts the bytes of optional data that may be kept at the same
// time. It allocates nothing. Not thread-safe.
#pragma once

#include <cstdint>

namespace dapd {

class ByteBudget {
 public:
  explicit ByteBudget(int64_t max_bytes) : left_(max_bytes) {}

  int64_t left() const { return left_; }

  // Takes `bytes` from the budget if enough are left. False, and nothing is
  // taken, otherwise.
  bool Take(int64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  // Returns the number of taken bytes.
  void Give(int64_t bytes) { left_ += bytes; }

 private:
  int64_t left_;
};

}  // namespace dapd
