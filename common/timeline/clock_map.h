// ClockMap converts times of a peer's clock to times of this process's clock.
//
// A reading is Cristian's ("Probabilistic clock synchronization", 1989), on
// which NTP is based: a call asks the peer for its time. The peer answered at a
// time between question and answer, so the middle of the two is wrong by at
// most half of the round trip. Between two readings the map is linear, which
// follows the drift of the clocks; before the first and after the last reading
// the offset is constant. The map is increasing, so events that do not overlap
// for the peer do not overlap here. Not thread-safe.
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace dapd {

struct ClockReading {
  absl::Time asked;  // by this process's clock
  absl::Time told;   // the peer's answer, by its clock
  absl::Time heard;  // by this process's clock

  absl::Time middle() const { return asked + (heard - asked) / 2; }
  absl::Duration error() const { return (heard - asked) / 2; }
};

class ClockMap {
 public:
  // Readings must come in the order of this process's clock; others are
  // ignored. Of several readings within a second the best one counts. If a
  // peer's clock was set back, the readings that contradict the new one are
  // removed.
  void Add(const ClockReading& reading);

  bool empty() const { return readings_.empty(); }

  // Returns the time by this process's clock; unchanged without a reading.
  absl::Time ToOwn(absl::Time peers) const;

  // Returns the largest possible error of ToOwn between the first reading and
  // the last; infinite without a reading.
  absl::Duration error() const;

 private:
  std::vector<ClockReading> readings_;  // increasing in told and in middle()
};

}  // namespace dapd
