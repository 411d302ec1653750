#include "services/trainer/copy/run_copier.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/config/run_folder.h"
#include "common/copy/run_copy.h"

namespace dapd {
namespace {

constexpr absl::Duration kGlance = absl::Milliseconds(50);
// Less than schedulers leave to a process that they stop.
constexpr absl::Duration kStoppedWait = absl::Seconds(20);

// Returns whether no further attempt of this process will help.
bool IsLasting(const absl::Status& error) {
  return absl::IsPermissionDenied(error) || absl::IsFailedPrecondition(error) ||
         absl::IsAborted(error);
}

std::string Seconds(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(100)));
}

}  // namespace

std::optional<RunCopierOptions> CopierOptions(const Config& config,
                                              const std::string& folder) {
  const CheckpointSection& checkpoint = config.checkpoint;
  if (checkpoint.copy_to.empty()) return std::nullopt;
  RunCopierOptions options;
  options.url = JoinPath(checkpoint.copy_to, config.run.name);
  options.run_name = config.run.name;
  options.folder = folder;
  options.keep = checkpoint.keep;
  options.command = ObjectStoreCommand(checkpoint.copy_python, options.url);
  options.progress_timeout = absl::Seconds(checkpoint.copy_timeout_seconds);
  return options;
}

absl::StatusOr<std::unique_ptr<RunCopier>> RunCopier::Start(
    RunCopierOptions options) {
  DropAllCuts(options.folder);
  ASSIGN_OR_RETURN(std::string run_id, RunId(options.folder));
  std::unique_ptr<RunCopier> copier(
      new RunCopier(std::move(options), std::move(run_id)));
  copier->thread_ = std::jthread([self = copier.get()] { self->Run(); });
  return copier;
}

std::unique_ptr<RunCopier> RunCopier::StartOrWarn(RunCopierOptions options) {
  auto copier = Start(std::move(options));
  if (copier.ok()) return *std::move(copier);
  LogWarning(absl::StrCat("the run will not be copied: ",
                          std::string(copier.status().message())));
  return nullptr;
}

RunCopier::RunCopier(RunCopierOptions options, std::string run_id)
    : options_(std::move(options)),
      store_({.url = options_.url,
              .command = options_.command,
              .progress_timeout = options_.progress_timeout,
              .is_cancelled = [this] { return is_ended_.load(); },
              .on_sent = options_.observer.on_sent}),
      uploader_(&store_, std::move(run_id), options_.run_name, options_.keep),
      pause_(options_.first_pause) {}

RunCopier::~RunCopier() {
  is_ended_ = true;
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }
  thread_.join();
  DropAllCuts(options_.folder);
}

// --- The training's side -----------------------------------------------------

void RunCopier::Add(int64_t step) {
  auto cut = CutRun(options_.folder, step);
  if (!cut.ok()) {
    LogWarning(absl::StrCat("the checkpoint of step ",
                            step,
                            " was not copied: ",
                            std::string(cut.status().message())));
    options_.observer.on_failed();
    return;
  }
  std::optional<RunCut> replaced;
  std::vector<RunCut> overtaken;
  {
    MutexLock lock(&mutex_);
    if (is_hopeless_) {
      // Nobody will copy this cut.
      replaced = *std::move(cut);
    } else {
      const auto found = waiting_.find(step);
      if (found != waiting_.end()) replaced = std::move(found->second);
      waiting_[step] = *std::move(cut);
      overtaken = TakeOvertaken();
    }
    changed_.NotifyAll();
  }
  if (replaced.has_value()) DropCut(*replaced);
  LeaveOut(overtaken);
}

std::vector<RunCut> RunCopier::TakeOvertaken() {
  std::vector<RunCut> overtaken;
  if (options_.keep == 0) return overtaken;
  std::set<int64_t> steps = copied_;
  for (const auto& [step, waiting] : waiting_) steps.insert(step);
  while (steps.size() > static_cast<size_t>(options_.keep)) {
    const auto found = waiting_.find(*steps.begin());
    if (found != waiting_.end()) {
      overtaken.push_back(std::move(found->second));
      waiting_.erase(found);
    }
    steps.erase(steps.begin());
  }
  return overtaken;
}

void RunCopier::LeaveOut(const std::vector<RunCut>& cuts) {
  for (const RunCut& cut : cuts) {
    DropCut(cut);
    options_.observer.on_left_out();
  }
}

bool RunCopier::Finish(
    absl::Duration timeout,
    const std::function<bool(absl::Duration)>& wait_for_stop) {
  const absl::Time start = SteadyNow();
  {
    MutexLock lock(&mutex_);
    is_finishing_ = true;
    // A new cut is tried at once.
    pause_ = options_.first_pause;
    resume_at_ = absl::InfinitePast();
    changed_.NotifyAll();
  }
  const auto is_over = [&]() -> bool {
    MutexLock lock(&mutex_);
    return is_hopeless_ || !is_finishing_ ||
           (waiting_.empty() && !busy_with_.has_value());
  };
  bool is_told = false;
  while (!is_over() && SteadyNow() < start + timeout) {
    if (!is_told && SteadyNow() > start + absl::Seconds(1)) {
      LogInfo(absl::StrCat("waiting for the copy at ",
                           options_.url,
                           ", for at most ",
                           absl::FormatDuration(timeout)));
      is_told = true;
    }
    if (wait_for_stop(kGlance)) break;
  }
  {
    MutexLock lock(&mutex_);
    if (!is_hopeless_ && waiting_.empty() && !busy_with_.has_value() &&
        !lost_.has_value()) {
      return true;
    }
  }
  LogWarning(absl::StrCat(
      "the copy at ",
      options_.url,
      " lacks the latest part of the run; all of it is in ",
      options_.folder,
      ", and the same command copies it once the store accepts it"));
  return false;
}

// --- The thread --------------------------------------------------------------

void RunCopier::Run() {
  while (std::optional<RunCut> cut = Next()) {
    const absl::Time start = SteadyNow();
    const absl::Status status = Copy(*cut);
    if (status.ok()) {
      Copied(*cut, SteadyNow() - start);
    } else if (absl::IsCancelled(status) || !Failed(*std::move(cut), status)) {
      return;
    }
  }
}

std::optional<RunCut> RunCopier::Next() {
  MutexLock lock(&mutex_);
  while (!is_ended_) {
    const absl::Duration left = resume_at_ - SteadyNow();
    if (waiting_.empty()) {
      changed_.Wait(&mutex_);
    } else if (left > absl::ZeroDuration()) {
      changed_.WaitFor(&mutex_, left);
    } else {
      auto newest = waiting_.extract(std::prev(waiting_.end()));
      busy_with_ = newest.key();
      return std::move(newest.mapped());
    }
  }
  return std::nullopt;
}

absl::Status RunCopier::Copy(const RunCut& cut) {
  RETURN_IF_ERROR(uploader_.Open());
  if (!has_newest_) {
    has_newest_ = true;
    options_.observer.on_newest(uploader_.newest());
    if (uploader_.newest() > cut.step) {
      LogWarning(absl::StrCat(
          options_.url,
          " holds step ",
          uploader_.newest(),
          " of this run, which resumes after step ",
          cut.step,
          "; copies of later steps stay until the run has passed them"));
    }
  }
  RETURN_IF_ERROR(uploader_.Upload(cut));
  options_.observer.on_newest(uploader_.newest());
  return uploader_.Thin();
}

void RunCopier::Copied(const RunCut& cut, absl::Duration time) {
  LogInfo(absl::StrCat("the checkpoint of step ",
                       cut.step,
                       " has been copied to ",
                       options_.url,
                       " (",
                       Seconds(time),
                       ")"));
  told_ = absl::OkStatus();
  options_.observer.on_copied(absl::ToDoubleSeconds(time));
  DropCut(cut);
  std::vector<RunCut> overtaken;
  {
    MutexLock lock(&mutex_);
    busy_with_.reset();
    pause_ = options_.first_pause;
    copied_ = uploader_.steps();
    if (lost_ <= cut.step) lost_.reset();
    overtaken = TakeOvertaken();
  }
  LeaveOut(overtaken);
}

bool RunCopier::Failed(RunCut cut, const absl::Status& error) {
  options_.observer.on_failed();
  const bool is_over = absl::IsAborted(error);
  const bool is_gone = IsGone(cut);
  // Logs one line for each kind of trouble, however often it occurs.
  if (told_.code() != error.code()) {
    told_ = error;
    LogWarning(absl::StrCat(
        "the checkpoint of step ",
        cut.step,
        " was not copied: ",
        std::string(error.message()),
        is_over   ? "; this process makes no further copies; training continues"
        : is_gone ? "; it is left out; training continues"
                  : absl::StrCat(
                        "; training continues, and the copy is retried after ",
                        "pauses of up to ",
                        absl::FormatDuration(options_.longest_pause))));
  }
  std::vector<RunCut> given_up;
  {
    MutexLock lock(&mutex_);
    busy_with_.reset();
    resume_at_ = SteadyNow() + pause_;
    pause_ = std::min(2 * pause_, options_.longest_pause);
    if (IsLasting(error)) is_finishing_ = false;
    if (is_gone) lost_ = std::max(lost_.value_or(0), cut.step);
    // A later cut of the same step replaces it.
    if (is_gone || waiting_.contains(cut.step)) {
      given_up.push_back(std::move(cut));
    } else {
      waiting_[cut.step] = std::move(cut);
    }
    if (is_over) {
      is_hopeless_ = true;
      for (auto& [step, waiting] : waiting_) {
        given_up.push_back(std::move(waiting));
      }
      waiting_.clear();
    }
  }
  for (const RunCut& old : given_up) DropCut(old);
  return !is_over;
}

// --- The end of a run --------------------------------------------------------

void FinishCopy(RunCopier& copier,
                const Config& config,
                const absl::Status& outcome,
                const std::function<bool(absl::Duration)>& wait_for_stop) {
  const absl::Duration wait =
      absl::Seconds(config.checkpoint.copy_wait_seconds);
  if (outcome.ok()) {
    copier.Finish(wait, wait_for_stop);
    return;
  }
  // The signal that ended the run does not stop the copy of its last
  // checkpoint.
  copier.Finish(std::min(wait, kStoppedWait), [](absl::Duration time) {
    absl::SleepFor(time);
    return false;
  });
}

void CopyFinishedRun(const Config& config,
                     const std::function<bool(absl::Duration)>& wait_for_stop) {
  if (config.checkpoint.copy_to.empty()) return;
  const auto folder = RunFolder::Open(config.run);
  if (!folder.ok()) {
    LogWarning(absl::StrCat("the run will not be copied: ",
                            std::string(folder.status().message())));
    return;
  }
  const auto copier =
      RunCopier::StartOrWarn(*CopierOptions(config, folder->path()));
  if (copier == nullptr) return;
  copier->Add(FinishedStep(folder->path()));
  FinishCopy(*copier, config, absl::OkStatus(), wait_for_stop);
}

}  // namespace dapd
