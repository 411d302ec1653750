// Restarts: whether a process of a run that has ended is started again, and
// when. The pause before a start doubles from one end to the next, so that a
// fault which lasts for seconds does not use up all starts; work that the
// process did (common/base/work_mark.h) makes it short again.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace dapd {

// Whether a process that ended with `code` would end so again: its usage, its
// configuration or its data is wrong, and it has said what.
bool WouldEndAgain(int code);

// Not thread-safe. Times are those of one clock (common/base/steady_time.h).
class Restarts {
 public:
  struct Options {
    // How long a process lives that was worth its start, so that a run of weeks
    // may lose any number. It says nothing of a crash: to read a model may take
    // as long.
    absl::Duration lasting = absl::Minutes(10);
    absl::Duration first_pause = absl::Milliseconds(200);
    absl::Duration longest_pause = absl::Seconds(10);
  };

  explicit Restarts(const Options& options)
      : options_(options), pause_(options.first_pause) {}

  void Started(absl::Time now) { started_ = now; }

  // The process ended at `now` with `code` (common/base/process_end.h), and had
  // worked since its start, or not. Returns when to start it again; nothing
  // after its third crash in a row, or its twentieth start in a row that was
  // worth nothing.
  std::optional<absl::Time> Ended(int code, bool has_worked, absl::Time now);

  // Since the last one it has not worked.
  int crashes() const { return crashes_; }
  // How often it has ended since a start that was worth it, that one's end
  // included.
  int ends() const { return ends_; }

 private:
  const Options options_;
  absl::Time started_;    // the last time
  absl::Duration pause_;  // before the next start
  int restarts_ = 0;      // since one that was worth it
  int crashes_ = 0;
  int ends_ = 0;
};

}  // namespace dapd
