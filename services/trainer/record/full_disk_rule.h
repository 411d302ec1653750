// FullDiskRule decides how a run reacts when its disk refuses (full, read-only,
// broken).
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/config/config.h"
#include "services/trainer/record/folder_watch.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

// Not thread-safe; used by the ledger's threads (ledger.h).
class FullDiskRule {
 public:
  // `run_folder`: where other processes see that the run waits (disk_wait.h).
  // `on_write_error`: checkpoint.on_write_error. `wait_for_stop` blocks for at
  // most the given time; true once the run is to stop. `metrics` and `status`
  // are told of failures; they must outlive this.
  FullDiskRule(std::string run_folder,
               OnWriteError on_write_error,
               std::function<bool(absl::Duration)> wait_for_stop,
               TrainerMetrics* metrics,
               TrainerStatus* status);

  // Runs `write`, which can be repeated. If the run's folder is gone
  // (folder_watch.h), the run ends, whatever is configured. The rule applies to
  // refusals of the disk: a file that could not be written or read
  // (IsFileError), or that reads back differently (DATA_LOSS). Any other error,
  // for example of a device without memory, is returned at once, since free
  // disk space would not help.
  //   pause     repeats it, with growing pauses of up to 10 s, until it
  //             succeeds (training goes on where it was) or the run is to stop
  //             (CANCELLED); meanwhile the status and the run folder say so,
  //             and every five minutes the log does
  //   continue  warns, and returns OK as if it had been written
  //   fail      returns the error
  absl::Status Write(const std::string& what,
                     const std::function<absl::Status()>& write);

  // Runs `write` for a file without which a run is worthless: "continue" counts
  // as "pause".
  absl::Status MustWrite(const std::string& what,
                         const std::function<absl::Status()>& write);

 private:
  absl::Status Retry(const std::string& what,
                     const std::function<absl::Status()>& write,
                     const absl::Status& first);

  const std::string run_folder_;
  const FolderWatch watch_;
  const OnWriteError on_write_error_;
  const std::function<bool(absl::Duration)> wait_for_stop_;
  TrainerMetrics* const metrics_;
  TrainerStatus* const status_;
};

}  // namespace dapd
