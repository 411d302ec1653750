// A progress line on stderr: done of total, rate, time left, and a note.
// On a terminal it is redrawn in place; elsewhere a line is logged from time to
// time, so that log files stay readable. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace dapd {

class Progress {
 public:
  // `unit`: what is counted, in plural ("steps"). `done`: what was done before,
  // which does not count for the rate.
  Progress(std::string unit, int64_t total, int64_t done = 0);
  // Ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total, with a short note such as "loss 0.123".
  void Update(int64_t done, const std::string& note);

  // Seconds until the end at the rate so far; 0 before the first unit.
  double EtaSeconds() const;

 private:
  std::string Line(const std::string& note) const;

  const std::string unit_;
  const int64_t total_;
  const bool is_terminal_;
  const absl::Time start_;
  const int64_t first_;
  int64_t done_;
  absl::Time last_shown_ = absl::InfinitePast();
};

}  // namespace dapd
