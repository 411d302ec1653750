#include "services/cli/run_supervisor.h"

#include <csignal>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/stop_requests.h"
#include "services/trainer/rank_grace.h"

namespace dapd {
namespace {

// A process that dies this often, one start after the other, is not worth
// another one.
constexpr int kMaxRestarts = 20;
// ChildProcess::Poll: 128 + the signal that ended it.
constexpr int kSignalBase = 128;
constexpr int kInterruptedCode = static_cast<int>(ExitCode::kInterrupted);
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);

// The larger, the more a trainer's exit code says of why the run ends. That a
// rank was lost says nothing: it is how the others see the end of one.
int WeightOf(int code) {
  return code == static_cast<int>(ExitCode::kRestart) ? 0 : code;
}

std::string EndOfLog(const ChildProcess& process) {
  return absl::StrCat(
      "the end of its log (", process.log_path(), "):\n  ", process.LogTail());
}

// Rank 0 has spoken on our stderr, the others only in their logs. Of a stop
// there is nothing to explain. A webhook may be told this: it sees no stderr.
absl::Status FailureOf(const ChildProcess& trainer, int code) {
  const bool has_spoken =
      trainer.log_path().empty() || code == kInterruptedCode;
  return WithExitCode(
      absl::InternalError(
          has_spoken ? absl::StrCat("the trainer ended with code ",
                                    code,
                                    "; the output of dapd run says why")
                     : absl::StrCat(trainer.name(),
                                    " ended with code ",
                                    code,
                                    "; ",
                                    EndOfLog(trainer))),
      static_cast<ExitCode>(code));
}

}  // namespace

absl::Status RunSupervisor::AddWorker(std::unique_ptr<ChildProcess> worker) {
  RETURN_IF_ERROR(worker->Start());
  workers_.push_back({std::move(worker), {.started = SteadyNow()}});
  return absl::OkStatus();
}

void RunSupervisor::AddTrainer(std::unique_ptr<ChildProcess> trainer) {
  trainers_.push_back(std::move(trainer));
}

absl::Status RunSupervisor::StartTrainers() {
  trainer_starts_.started = SteadyNow();
  for (const auto& trainer : trainers_) RETURN_IF_ERROR(trainer->Start());
  return absl::OkStatus();
}

// Rank 0 ends the run; another rank that fails ends the attempt of all.
std::optional<RunSupervisor::End> RunSupervisor::PollTrainers(
    bool asked_to_stop) {
  for (const auto& trainer : trainers_) {
    const int code = trainer->Poll();
    if (code == 0 && trainer == trainers_.front()) {
      // The run is done, whatever became of the others meanwhile.
      end_ = {trainer.get(), code};
      break;
    }
    if (code > 0 &&
        (!end_.has_value() || WeightOf(code) > WeightOf(end_->code))) {
      end_ = {trainer.get(), code};
    }
  }
  // A second signal would end rank 0 in the middle of its last checkpoint.
  if (!end_.has_value() || (asked_to_stop && trainers_.front()->running())) {
    return std::nullopt;
  }
  const End end = *std::exchange(end_, std::nullopt);
  StopTrainers(/*is_done=*/end.code == 0);
  return end;
}

// What was lost explains why the other ranks end: they are given the time to
// say so, and no more.
void RunSupervisor::StopTrainers(bool is_done) {
  for (const auto& trainer : trainers_) {
    const bool is_first = &trainer == &trainers_.front();
    trainer->Stop(is_done    ? kLastRankGrace
                  : is_first ? kSaveGrace
                             : kLostRankGrace);
  }
}

bool RunSupervisor::MayStartAgain(Starts& starts) const {
  if (SteadyNow() - starts.started >= lasting_) starts.restarts = 0;
  if (starts.restarts >= kMaxRestarts) return false;
  ++starts.restarts;
  return true;
}

// A trainer that was killed goes on after its newest checkpoint, and so do all
// ranks when one is lost; a trainer that ended by itself said why.
bool RunSupervisor::MayRestartTrainers(int code, bool asked_to_stop) {
  const bool killed = code > kSignalBase && code != kInterruptedCode;
  const bool lost_rank = code == static_cast<int>(ExitCode::kRestart);
  if (!(killed || lost_rank) || asked_to_stop ||
      !MayStartAgain(trainer_starts_)) {
    return false;
  }
  LogWarning(
      absl::StrCat(killed ? "a trainer was killed" : "a trainer rank was lost",
                   " (code ",
                   code,
                   "); restarting from the newest checkpoint"));
  return true;
}

absl::Status RunSupervisor::KeepAlive(Worker& worker) {
  ChildProcess& process = *worker.process;
  const int code = process.Poll();
  if (code < 0) return absl::OkStatus();
  const bool hopeless = code == static_cast<int>(ExitCode::kConfig) ||
                        code == static_cast<int>(ExitCode::kData) ||
                        code == static_cast<int>(ExitCode::kUsage);
  if (hopeless || !MayStartAgain(worker.starts)) {
    return WithExitCode(
        absl::InternalError(absl::StrCat(process.name(),
                                         " ended with code ",
                                         code,
                                         " and would do so again; ",
                                         EndOfLog(process))),
        static_cast<ExitCode>(code));
  }
  LogWarning(absl::StrCat(
      process.name(), " ended with code ", code, "; restarting it"));
  worker.starts.started = SteadyNow();
  return process.Start();
}

absl::Status RunSupervisor::Follow(const std::function<void()>& look) {
  RETURN_IF_ERROR(StartTrainers());
  bool asked_to_stop = false;
  while (true) {
    if (const auto end = PollTrainers(asked_to_stop); end.has_value()) {
      const int code = end->code;
      if (code == 0) return absl::OkStatus();
      if (MayRestartTrainers(code, asked_to_stop)) {
        RETURN_IF_ERROR(StartTrainers());
        continue;
      }
      // A program that is still being started does not catch signals yet.
      if (asked_to_stop && code == kSignalBase + SIGTERM) {
        return absl::CancelledError("stopped before the trainer had started");
      }
      return FailureOf(*end->trainer, code);
    }
    if (StopRequests() > 1) {
      return absl::CancelledError("stopped at once by a second signal");
    }
    if (StopRequests() > 0 && !asked_to_stop) {
      LogInfo("stopping; a second Ctrl-C stops at once");
      for (const auto& trainer : trainers_) trainer->Signal(SIGTERM);
      asked_to_stop = true;
    }
    for (Worker& worker : workers_) {
      if (asked_to_stop) break;
      if (const absl::Status kept = KeepAlive(worker); !kept.ok()) {
        StopTrainers(/*is_done=*/false);
        return kept;
      }
    }
    look();
    absl::SleepFor(kPollInterval);
  }
}

}  // namespace dapd
