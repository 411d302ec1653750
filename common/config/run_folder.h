// RunFolder: `<run.output_dir>/<run.name>`, held by one trainer at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"

namespace dapd {

// The file in the folder of a run that the writing process locks.
inline constexpr char kRunLock[] = ".lock";

// Returns the folder of the run: <run.output_dir>/<run.name>.
std::string FolderOf(const RunConfig& run);

// Returns the error for a run that may not continue in its folder, because the
// folder holds a run that has `finished` or because run.resume is never.
//   FAILED_PRECONDITION (exit code kConfig)
absl::Status AlreadyHoldsRun(const RunConfig& run, bool finished);

class RunFolder {
 public:
  // Creates the folder, or takes the folder of an earlier attempt, and locks it
  // until destruction. Removes files and folders that a killed attempt left
  // half written.
  //   FAILED_PRECONDITION (kConfig)  it holds a run and run.resume is "never"
  //   INVALID_ARGUMENT (kConfig)     this user may not write there
  //   FAILED_PRECONDITION (kConfig)  its file system cannot lock
  //   UNAVAILABLE                    another trainer holds it
  static absl::StatusOr<RunFolder> Open(const RunConfig& run);
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const;
  // Returns whether an earlier attempt used the folder.
  bool resumed() const { return resumed_; }

 private:
  RunFolder(std::string path, int lock, bool resumed);
  std::string path_;
  int lock_ = -1;
  bool resumed_ = false;
};

// Returns whether a trainer holds the run in this folder now, on this machine
// or, if the file system locks across machines, on another machine. Returns an
// error if it cannot be determined. The call holds the lock for an instant, for
// which Open waits.
absl::StatusOr<bool> IsHeld(const std::string& run_folder);

// Returns the step at which the run in this folder finished; 0 if there is no
// run or it did not finish.
int64_t FinishedStep(const std::string& run_folder);

// Returns whether the run has taken `steps` optimizer steps and finished the
// work after the last step.
bool HasFinished(const std::string& run_folder, int64_t steps);

}  // namespace dapd
