// RunFolder: `<run.output_dir>/<run.name>`, held by one trainer at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"

namespace dapd {

// The file in a run's folder that whoever writes there holds the lock of.
inline constexpr char kRunLock[] = ".lock";

// The folder of the run: <run.output_dir>/<run.name>.
std::string FolderOf(const RunConfig& run);

// The error for a run that is not to go on in its folder, which holds one that
// has `finished`, or that run.resume says never to continue.
//   FAILED_PRECONDITION (exit code kConfig)
absl::Status AlreadyHoldsRun(const RunConfig& run, bool finished);

class RunFolder {
 public:
  // Makes the folder, or takes the one that an earlier attempt left, and locks
  // it until destruction. Half files of an attempt that was killed are removed.
  //   FAILED_PRECONDITION (kConfig)  it holds a run and run.resume is "never"
  //   INVALID_ARGUMENT (kConfig)  this user may not write there
  //   FAILED_PRECONDITION (kConfig)  its file system cannot lock
  //   UNAVAILABLE          another trainer holds it
  static absl::StatusOr<RunFolder> Open(const RunConfig& run);
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const;
  // An earlier attempt was here.
  bool resumed() const { return resumed_; }

 private:
  RunFolder(std::string path, int lock, bool resumed);
  std::string path_;
  int lock_ = -1;
  bool resumed_ = false;
};

// Whether a trainer holds the run in this folder at the moment, on this machine
// or, as far as its file system locks across machines, on another. An error if
// that cannot be found out. Takes the lock for an instant, for which Open
// waits.
absl::StatusOr<bool> IsHeld(const std::string& run_folder);

// The step at which the run in this folder finished; 0 if there is none or it
// did not finish.
int64_t FinishedStep(const std::string& run_folder);

// Whether it has taken so many steps, those of one that is to take them, and
// done what follows them.
bool HasFinished(const std::string& run_folder, int64_t steps);

}  // namespace dapd
