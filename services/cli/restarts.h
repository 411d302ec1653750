// Restarts decides whether and when a run's process that ended is started
// again. The pause before a start doubles from one end to the next, so that a
// fault of some seconds does not use up all starts; work of the process
// (common/base/work_mark.h) makes the pause short again.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace dapd {

// Returns whether a process that ended with `code` would end so again: its
// usage, configuration or data is wrong, and it has said so.
bool WouldEndAgain(int code);

// Not thread-safe. All times come from one clock (common/base/steady_time.h).
class Restarts {
 public:
  struct Options {
    // A process that lives so long was worth its start, so that a run of weeks
    // may lose any number of processes. Does not count for crashes: reading a
    // model may take as long.
    absl::Duration lasting = absl::Minutes(10);
    absl::Duration first_pause = absl::Milliseconds(200);
    absl::Duration longest_pause = absl::Seconds(10);
  };

  explicit Restarts(const Options& options)
      : options_(options), pause_(options.first_pause) {}

  void Started(absl::Time now) { started_ = now; }

  // Notes that the process ended at `now` with `code`
  // (common/base/process_end.h); `has_worked`: it worked since its start.
  // Returns when to start it again; nothing after its third crash in a row, or
  // its twentieth start in a row that was not worth it.
  std::optional<absl::Time> Ended(int code, bool has_worked, absl::Time now);

  // Returns the number of crashes in a row without work in between.
  int crashes() const { return crashes_; }
  // Returns the number of ends in a row since the last start that was worth it;
  // the end of that start counts.
  int ends() const { return ends_; }

 private:
  const Options options_;
  absl::Time started_;    // last
  absl::Duration pause_;  // before the next start
  int restarts_ = 0;      // since a start that was worth it
  int crashes_ = 0;
  int ends_ = 0;
};

}  // namespace dapd
