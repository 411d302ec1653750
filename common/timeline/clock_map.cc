#include "common/timeline/clock_map.h"

#include <algorithm>

namespace dapd {
namespace {

constexpr size_t kMaxReadings = 4096;
constexpr absl::Duration kOneOccasion = absl::Seconds(1);

}  // namespace

void ClockMap::Add(const ClockReading& reading) {
  if (reading.heard < reading.asked) return;
  if (!readings_.empty() && reading.middle() <= readings_.back().middle()) {
    return;
  }
  while (!readings_.empty() && readings_.back().told >= reading.told) {
    readings_.pop_back();
  }
  if (!readings_.empty() &&
      reading.middle() - readings_.back().middle() < kOneOccasion) {
    if (reading.error() < readings_.back().error()) readings_.back() = reading;
    return;
  }
  if (readings_.size() < kMaxReadings) readings_.push_back(reading);
}

absl::Time ClockMap::ToOwn(absl::Time peers) const {
  if (readings_.empty()) return peers;
  const auto next = std::ranges::upper_bound(
      readings_, peers, std::less<>(), &ClockReading::told);
  if (next == readings_.begin()) {
    return readings_.front().middle() + (peers - readings_.front().told);
  }
  const ClockReading& before = *std::prev(next);
  if (next == readings_.end()) return before.middle() + (peers - before.told);
  const double share =
      absl::FDivDuration(peers - before.told, next->told - before.told);
  return before.middle() + share * (next->middle() - before.middle());
}

absl::Duration ClockMap::error() const {
  absl::Duration largest =
      readings_.empty() ? absl::InfiniteDuration() : absl::ZeroDuration();
  for (const ClockReading& reading : readings_) {
    largest = std::max(largest, reading.error());
  }
  return largest;
}

}  // namespace dapd
