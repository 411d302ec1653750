// LengthForecast tells how long answers are expected to become, from the
// lengths of the answers that have ended and the present lengths of the others.
// The engine admits by it as many answers as memory will hold (engine.h).
//
// The lengths of the ended answers alone would mislead, since the long answers
// end last. So an open answer counts as an answer whose length is known to be
// larger than its present length: the curve is the estimate of Kaplan and Meier
// (1958) for censored observations. Beyond the longest ended answer nothing is
// known. There, answers are expected to end at a constant rate, once in as many
// tokens as all answers have per answer that has ended.
//
// Not thread-safe. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dapd {

class LengthForecast {
 public:
  // Only so many of the ended answers count, the last ones, because a policy
  // that is trained changes its lengths.
  static constexpr size_t kMostAnswers = 1024;

  // Notes an answer that ended with `tokens` tokens, at least one.
  void Add(int64_t tokens);

  // Returns false until an answer has ended: nothing is expected until then.
  bool is_known() const { return !ended_.empty(); }

  class Curve {
   public:
    // Returns the part of all answers that become longer than `tokens`; above
    // 0.
    double ShareAbove(int64_t tokens) const;

   private:
    friend class LengthForecast;
    struct Point {
      int64_t tokens = 0;  // a length with which answers ended
      double share = 1;    // of the answers that become longer
    };
    std::vector<Point> points_;  // by length; the first has no tokens
    double tail_ = 0;            // tokens in which an answer ends after them
  };
  // Returns the curve when the answers that have not ended have `open` tokens
  // each. It depends on nothing but these numbers and the ended lengths.
  // is_known() must hold.
  Curve Estimate(std::span<const int64_t> open) const;

 private:
  std::vector<int64_t> ended_;  // a ring once it is full
  size_t next_ = 0;             // the place of the next length in the ring
};

}  // namespace dapd
