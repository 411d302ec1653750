// SweepRunner: the runs of a sweep as processes of their own, each a `dapd
// run`, as many side by side as the plan allows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/base/child_process.h"
#include "services/cli/sweep/sweep_plan.h"

namespace dapd {

// Not thread-safe.
class SweepRunner {
 public:
  explicit SweepRunner(SweepPlan plan);

  // Performs every run that is not done or whose copy (checkpoint.copy_to) may
  // be incomplete, and blocks until all have ended. Logs a run that fails with
  // the end of its log, and a run that cannot be started with the reason; the
  // other runs continue. The error names all failed runs, and has the exit code
  // of the first. Returns CANCELLED after a signal
  // (common/base/stop_requests.h): the first signal tells the current runs to
  // save and stop, a second signal ends them at once.
  absl::Status Run();

 private:
  struct Active {
    size_t run = 0;  // index in the plan
    size_t slot = 0;
    std::unique_ptr<ChildProcess> process;
    absl::Time start;
  };

  void StartWhatFits();
  absl::Status Start(size_t run);
  void AddFailed(const std::string& name, int code);
  // Collects runs that have ended.
  void Collect();
  double MemoryInUse() const;
  // Returns the GPUs of a slot, in which runs follow each other.
  std::vector<std::string> GpusOf(size_t slot) const;

  const SweepPlan plan_;
  const std::vector<std::string> gpus_;
  size_t next_ = 0;  // the first run that was not considered yet
  std::vector<Active> active_;
  std::vector<std::string> failed_;
  int first_code_ = 0;
  int64_t num_done_ = 0;
};

}  // namespace dapd
