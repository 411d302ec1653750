// A progress line on stderr: done of total, rate, time left, and a note. On a
// terminal it appears after half a second and is redrawn in place at most ten
// times per second. Otherwise a line is logged every 30 s, so that short work
// shows nothing and log files stay readable. With a JSON log there is no bar,
// even on a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace dapd {

// Computes rate, time left and text; it uses neither a clock nor a terminal.
class ProgressMeter {
 public:
  // `unit` names the counted things in the plural ("steps"). `total` 0: not
  // known. `done` is the number at the start, which does not count for the
  // rate.
  ProgressMeter(std::string unit, int64_t total, int64_t done, absl::Time now);

  void Update(int64_t done, absl::Time now);
  // From now on earlier work does not count for the rate.
  void Begin(absl::Time now);

  // Returns the rate over the last 20 updates with progress, so that a slow
  // start does not distort it; 0 before the first update.
  double SecondsPerUnit() const;
  double EtaSeconds() const;

  // "[####....] 5/20 steps  1.25/s  ETA 0:12  note"; without a total
  // "5 steps  1.25/s  note". With fewer columns the bar becomes shorter, and
  // then the last parts are left out; two spaces separate the parts, also
  // within a note.
  std::string Line(const std::string& note,
                   size_t columns = std::string::npos) const;

 private:
  const std::string unit_;
  const int64_t total_;
  std::deque<std::pair<absl::Time, int64_t>> updates_;  // never empty
};

// Not thread-safe.
class Progress {
 public:
  // Takes the arguments of ProgressMeter.
  explicit Progress(std::string unit, int64_t total = 0, int64_t done = 0);
  // Ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total, with a short note such as "loss 0.123".
  void Update(int64_t done, const std::string& note = "");
  // Calls ProgressMeter's function of this name.
  void Begin();

  double SecondsPerUnit() const { return meter_.SecondsPerUnit(); }
  double EtaSeconds() const { return meter_.EtaSeconds(); }

 private:
  void Show(absl::Time now);

  const bool is_terminal_;
  ProgressMeter meter_;
  std::string note_;
  bool has_line_ = false;    // on the terminal
  bool is_pending_ = false;  // something is not shown yet
  absl::Time next_shown_;
};

}  // namespace dapd
