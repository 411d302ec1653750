// ClockMap: what time it was here when a peer's clock showed another one.
//
// A reading is Cristian's ("Probabilistic clock synchronization", 1989), which
// NTP's are made of: a call asks the peer for its time. It was told somewhere
// between the question and the answer, so the middle of the two is wrong by at
// most half of the round trip. Between two readings the map is linear, which
// takes the drift of the clocks with it; before the first and behind the last
// it keeps their distance. Since it always rises, what did not overlap for the
// peer does not here. Not thread-safe.
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace dapd {

struct ClockReading {
  absl::Time asked;  // by our clock
  absl::Time told;   // the peer's answer, by its clock
  absl::Time heard;  // by our clock

  absl::Time middle() const { return asked + (heard - asked) / 2; }
  absl::Duration error() const { return (heard - asked) / 2; }
};

class ClockMap {
 public:
  // Later than earlier ones by our clock; anything else is ignored. Of readings
  // within a second the best one counts. A peer's clock that was set back
  // makes those that it contradicts worthless.
  void Add(const ClockReading& reading);

  bool empty() const { return readings_.empty(); }

  // By our clock; unchanged without a reading.
  absl::Time ToOwn(absl::Time peers) const;

  // What ToOwn is wrong by at most, between the first reading and the last;
  // infinite without a reading.
  absl::Duration error() const;

 private:
  std::vector<ClockReading> readings_;  // rising in told and in middle()
};

}  // namespace dapd
