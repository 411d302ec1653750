// A progress line on stderr: done of total, rate, time left, and a note.
// On a terminal it appears after half a second and is redrawn in place, at most
// ten times per second; elsewhere a line is logged every 30 s. So what is done
// at once shows nothing, and log files stay readable. A log of JSON has no bar
// even on a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace dapd {

// Rate, time left and text; no clock and no terminal of its own.
class ProgressMeter {
 public:
  // `unit`: what is counted, in plural ("steps"). `total` 0: not known.
  // `done`: what was there before, which does not count for the rate.
  ProgressMeter(std::string unit, int64_t total, int64_t done, absl::Time now);

  void Update(int64_t done, absl::Time now);
  // What came before counts for the rate no more.
  void Begin(absl::Time now);

  // By the last 20 updates that brought anything: what was slow at the start
  // does not spoil it. 0 before the first.
  double SecondsPerUnit() const;
  double EtaSeconds() const;

  // "[####....] 5/20 steps  1.25/s  ETA 0:12  note"; without a total
  // "5 steps  1.25/s  note". For fewer columns the bar is shorter, and then the
  // last parts are left out, those of a note too if two spaces part them.
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
  // As ProgressMeter.
  explicit Progress(std::string unit, int64_t total = 0, int64_t done = 0);
  // Ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total, with a short note such as "loss 0.123".
  void Update(int64_t done, const std::string& note = "");
  // As ProgressMeter's.
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
