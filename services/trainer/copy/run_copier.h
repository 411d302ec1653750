// RunCopier: keeps a copy of a run at a URL (checkpoint.copy_to) during
// training. Slow work happens on a thread of its own and in a Python process;
// failures there are logged, counted and retried, and never reach the training.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/config/config.h"
#include "common/copy/object_store.h"
#include "services/trainer/copy/run_cut.h"
#include "services/trainer/copy/run_uploader.h"

namespace dapd {

// Called on the copier's thread; on_failed and on_left_out also on the
// training's thread. No function may be empty.
struct CopyObserver {
  // The step of the newest whole copy, once it is known and whenever it
  // changes.
  std::function<void(int64_t step)> on_newest = [](int64_t) {};
  std::function<void(double seconds)> on_copied = [](double) {};
  std::function<void()> on_failed = [] {};
  // A checkpoint was overtaken by newer ones.
  std::function<void()> on_left_out = [] {};
  std::function<void(int64_t bytes)> on_sent = [](int64_t) {};
};

struct RunCopierOptions {
  std::string url;  // of this run's copy alone
  std::string run_name;
  std::string folder;                // the run's
  int64_t keep = 2;                  // 0: all
  std::vector<std::string> command;  // ObjectStoreCommand
  absl::Duration progress_timeout = absl::Minutes(2);
  // The pause between two attempts, doubled each time.
  absl::Duration first_pause = absl::Seconds(1);
  absl::Duration longest_pause = absl::Minutes(5);
  CopyObserver observer;
};

// Returns the options for the run in `folder`; nothing if `config` wants no
// copy.
std::optional<RunCopierOptions> CopierOptions(const Config& config,
                                              const std::string& folder);

class RunCopier {
 public:
  // Returns an error if the run's id (RunId) cannot be written into the run
  // folder.
  static absl::StatusOr<std::unique_ptr<RunCopier>> Start(
      RunCopierOptions options);
  // Calls Start; an error becomes a warning and null, because training
  // continues without a copy.
  static std::unique_ptr<RunCopier> StartOrWarn(RunCopierOptions options);
  // Stops the upload; the next process copies the rest.
  ~RunCopier();

  // Takes a cut (run_cut.h) of the run folder, which holds a checkpoint of
  // `step` and all that belongs to it, and returns. The newest cut is copied
  // first; older waiting cuts follow as long as they would be kept. A later cut
  // of the same step replaces the earlier one. Call it from the thread that
  // writes the folder.
  void Add(int64_t step);

  // Blocks until everything is copied, `timeout` is over, `wait_for_stop(d)`,
  // which blocks for at most d, returns true, or an attempt since has shown
  // that retrying is useless (permission, no Python, another run's place). Logs
  // the outcome and returns whether everything is copied.
  bool Finish(absl::Duration timeout,
              const std::function<bool(absl::Duration)>& wait_for_stop);

 private:
  RunCopier(RunCopierOptions options, std::string run_id);
  void Run();
  // Returns the next cut to copy, after the pause; nothing at the end.
  std::optional<RunCut> Next();
  absl::Status Copy(const RunCut& cut);
  void Copied(const RunCut& cut, absl::Duration time);
  // Puts the cut back unless it is gone. Returns false if retrying is useless.
  bool Failed(RunCut cut, const absl::Status& error);
  // Takes the cuts out of waiting_ that would not be kept.
  std::vector<RunCut> TakeOvertaken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveOut(const std::vector<RunCut>& cuts);

  const RunCopierOptions options_;
  std::atomic<bool> is_ended_ = false;
  ObjectStore store_;     // the thread's
  RunUploader uploader_;  // the thread's
  bool has_newest_ = false;
  absl::Status told_;  // last logged failure; OK: none since a success

  Mutex mutex_;
  CondVar changed_;
  std::map<int64_t, RunCut> waiting_ ABSL_GUARDED_BY(mutex_);  // by step
  std::optional<int64_t> busy_with_ ABSL_GUARDED_BY(mutex_);   // that step
  std::set<int64_t> copied_ ABSL_GUARDED_BY(mutex_);           // steps
  // A step whose cut is gone and that no later copy replaces.
  std::optional<int64_t> lost_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  absl::Time resume_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool is_finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_hopeless_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

// Waits at the end of a run for its last copy, as long as `config` says, but at
// most 20 s if the run is not finished.
void FinishCopy(RunCopier& copier,
                const Config& config,
                const absl::Status& outcome,
                const std::function<bool(absl::Duration)>& wait_for_stop);

// Copies a finished run if `config` says so and it is not copied yet; waits
// like FinishCopy. Holds the run's folder meanwhile; a folder that another
// process holds is left alone, with a warning.
void CopyFinishedRun(const Config& config,
                     const std::function<bool(absl::Duration)>& wait_for_stop);

}  // namespace dapd
