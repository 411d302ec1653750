#include "services/cli/sweep/sweep_runner.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "common/base/child_process.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/process_end.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/stop_requests.h"
#include "common/base/this_program.h"
#include "common/base/visible_gpus.h"
#include "common/gpus/gpu_report.h"

namespace dapd {
namespace {

// Returns nothing if all runs compute on the CPU, which need no driver.
std::vector<std::string> GpusOfRuns(const SweepPlan& plan) {
  const bool on_cpu = std::ranges::all_of(plan.runs, [](const SweepRun& run) {
    return run.config.model.device == DeviceChoice::kCpu;
  });
  return on_cpu ? std::vector<std::string>() : GpuNames(FindGpus());
}

}  // namespace

SweepRunner::SweepRunner(SweepPlan plan)
    : plan_(std::move(plan)), gpus_(GpusOfRuns(plan_)) {}

double SweepRunner::MemoryInUse() const {
  double bytes = 0.0;
  for (const Active& active : active_) {
    bytes += plan_.runs[active.run].memory_bytes;
  }
  return bytes;
}

// Each slot gets GPUs of its own while there are enough; more slots than GPUs
// share.
std::vector<std::string> SweepRunner::GpusOf(size_t slot) const {
  const auto places = static_cast<size_t>(plan_.parallel);
  if (gpus_.empty() || places == 1) return gpus_;
  if (gpus_.size() < places) return {gpus_[slot % gpus_.size()]};
  const size_t each = gpus_.size() / places;
  const auto first = gpus_.begin() + static_cast<std::ptrdiff_t>(slot * each);
  return {first, first + static_cast<std::ptrdiff_t>(each)};
}

absl::Status SweepRunner::Start(size_t index) {
  const SweepRun& run = plan_.runs[index];
  const std::string self = ThisProgram();
  if (self.empty()) {
    return absl::InternalError(
        "cannot find this program: /proc/self/maps does not name its file");
  }
  std::vector<std::string> command = {self, "run", plan_.config_path};
  for (const std::string& override : run.overrides) {
    command.push_back("--set");
    command.push_back(override);
  }
  size_t slot = 0;
  while (std::any_of(active_.begin(), active_.end(), [&](const Active& other) {
    return other.slot == slot;
  })) {
    ++slot;
  }
  std::vector<std::string> environment;
  if (run.config.model.device != DeviceChoice::kCpu && !gpus_.empty()) {
    environment.push_back(GpuSetting(GpusOf(slot)));
  }
  const std::string logs = JoinPath(plan_.folder, "logs");
  RETURN_IF_ERROR(MakeDirectories(logs));
  Active active{.run = index, .slot = slot, .start = SteadyNow()};
  active.process = std::make_unique<ChildProcess>(
      run.name,
      std::move(command),
      JoinPath(logs, absl::StrCat(run.name, ".log")),
      std::move(environment));
  const char* what = " starts";
  if (FileExists(JoinPath(run.folder, "config.yaml"))) what = " resumes";
  if (run.done) what = " is already done, and its copy is completed";
  RETURN_IF_ERROR(active.process->Start());
  LogInfo(absl::StrCat(run.name,
                       what,
                       " (",
                       index + 1,
                       " of ",
                       plan_.runs.size(),
                       "), log: ",
                       active.process->log_path()));
  active_.push_back(std::move(active));
  return absl::OkStatus();
}

// Starts runs in order: a small run does not overtake a large one that waits
// for memory.
void SweepRunner::StartWhatFits() {
  while (next_ < plan_.runs.size() &&
         active_.size() < static_cast<size_t>(plan_.parallel)) {
    const SweepRun& run = plan_.runs[next_];
    // A `dapd run` completes a copy that may be incomplete.
    if (run.done && run.config.checkpoint.copy_to.empty()) {
      ++num_done_;
      ++next_;
      LogInfo(absl::StrCat(run.name, " is already done"));
      continue;
    }
    if (plan_.memory_bytes > 0 && !active_.empty() &&
        MemoryInUse() + run.memory_bytes > plan_.memory_bytes) {
      return;
    }
    if (const absl::Status started = Start(next_); !started.ok()) {
      AddFailed(run.name, static_cast<int>(ExitCodeOf(started)));
      LogError(absl::StrCat(
          run.name, " cannot be started: ", std::string(started.message())));
    }
    ++next_;
  }
}

void SweepRunner::AddFailed(const std::string& name, int code) {
  if (failed_.empty()) first_code_ = code;
  failed_.push_back(IsKill(code)
                        ? absl::StrCat(name, " (", HowItEnded(code), ")")
                        : absl::StrCat(name, " (code ", code, ")"));
}

void SweepRunner::Collect() {
  for (size_t i = 0; i < active_.size();) {
    Active& active = active_[i];
    const int code = active.process->Poll();
    if (code < 0) {
      ++i;
      continue;
    }
    const std::string& name = plan_.runs[active.run].name;
    if (code == 0) {
      ++num_done_;
      LogInfo(absl::StrCat(name,
                           " is done after ",
                           absl::FormatDuration(absl::Trunc(
                               SteadyNow() - active.start, absl::Seconds(1))),
                           "; ",
                           num_done_,
                           " of ",
                           plan_.runs.size()));
    } else if (StopRequests() == 0) {
      AddFailed(name, code);
      LogError(absl::StrCat(name,
                            " ",
                            IsKill(code)
                                ? active.process->HowItEnded(code)
                                : absl::StrCat("failed with code ", code),
                            "; the end of its log (",
                            active.process->log_path(),
                            "):\n  ",
                            active.process->LogTail()));
    }
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

absl::Status SweepRunner::Run() {
  int asked_to_stop = 0;
  while (true) {
    Collect();
    if (StopRequests() == 0) StartWhatFits();
    if (active_.empty()) break;
    if (const int requests = StopRequests(); requests > asked_to_stop) {
      if (asked_to_stop == 0) {
        LogInfo("stopping; a second Ctrl-C stops at once");
      }
      // A run stops at once after a second signal, like this process.
      for (const Active& active : active_) active.process->Signal(SIGTERM);
      asked_to_stop = requests;
    }
    absl::SleepFor(kChildPollInterval);
  }
  if (StopRequests() > 0) {
    return absl::CancelledError(
        absl::StrCat("stopped with ",
                     num_done_,
                     " of ",
                     plan_.runs.size(),
                     " runs done; the same command resumes the sweep"));
  }
  if (failed_.empty()) return absl::OkStatus();
  // Codes of 128 + a signal are not ours.
  const bool was_killed = first_code_ > 128;
  return WithExitCode(
      absl::InternalError(absl::StrCat(failed_.size(),
                                       " of ",
                                       plan_.runs.size(),
                                       " runs failed: ",
                                       absl::StrJoin(failed_, ", "),
                                       "; the same command retries them")),
      was_killed ? ExitCode::kInternal : static_cast<ExitCode>(first_code_));
}

}  // namespace dapd
