#include "services/cli/run_supervisor.h"

#include <csignal>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/child_process.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/process_end.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/stop_requests.h"
#include "services/cli/crash_text.h"
#include "services/trainer/rank_grace.h"

namespace dapd {
namespace {

constexpr int kInterruptedCode = static_cast<int>(ExitCode::kInterrupted);

// Returns how much a trainer's exit code says about the cause of the run's end.
// The code of a lost rank says nothing: the other ranks end with it when any
// rank ends.
int WeightOf(int code) {
  return code == static_cast<int>(ExitCode::kRestart) ? 0 : code;
}

// Returns whether a trainer that lacked workers may end with this code.
bool MayLackWorkers(int code) {
  return code == static_cast<int>(ExitCode::kInternal) ||
         code == static_cast<int>(ExitCode::kPeerUnavailable) ||
         code == kInterruptedCode;
}

// Returns the exit code of `dapd run` for a process' code: a death and, after
// all restarts, kRestart become other codes.
ExitCode OurCode(int code) {
  return code > CodeOfSignal(0) && code != kInterruptedCode
             ? ExitCode::kInternal
         : code == static_cast<int>(ExitCode::kRestart)
             ? ExitCode::kInternal
             : static_cast<ExitCode>(code);
}

absl::Status EndedRun(const std::string& text) {
  return WithExitCode(absl::InternalError(text), ExitCode::kInternal);
}

std::string InPause(absl::Time next) {
  return absl::StrCat(" in ",
                      absl::FormatDuration(absl::Ceil(
                          next - SteadyNow(), absl::Milliseconds(100))));
}

}  // namespace

absl::Status RunSupervisor::AddWorker(std::unique_ptr<ChildProcess> worker) {
  RETURN_IF_ERROR(worker->Start());
  workers_.push_back({std::move(worker), Restarts(restart_options_)});
  workers_.back().restarts.Started(SteadyNow());
  return absl::OkStatus();
}

void RunSupervisor::AddTrainer(std::unique_ptr<ChildProcess> trainer) {
  trainers_.push_back(std::move(trainer));
}

absl::Status RunSupervisor::StartTrainers() {
  next_trainer_start_.reset();
  trainer_restarts_.Started(SteadyNow());
  for (const auto& trainer : trainers_) RETURN_IF_ERROR(trainer->Start());
  return absl::OkStatus();
}

// The end of rank 0 ends the run; the failure of another rank ends the attempt
// of all ranks.
std::optional<RunSupervisor::End> RunSupervisor::PollTrainers(
    bool asked_to_stop) {
  for (const auto& trainer : trainers_) {
    const int code = trainer->Poll();
    if (code == 0 && trainer == trainers_.front()) {
      // The run is done, whatever happened to other ranks meanwhile.
      end_ = {trainer.get(), code};
      break;
    }
    if (code > 0 &&
        (!end_.has_value() || WeightOf(code) > WeightOf(end_->code))) {
      end_ = {trainer.get(), code};
    }
  }
  // A second signal would interrupt rank 0's last checkpoint.
  if (!end_.has_value() || (asked_to_stop && trainers_.front()->running())) {
    return std::nullopt;
  }
  const End end = *std::exchange(end_, std::nullopt);
  StopTrainers(/*is_done=*/end.code == 0);
  return end;
}

// If a rank is lost, the other ranks end for that reason; they get only the
// time to say so.
void RunSupervisor::StopTrainers(bool is_done) {
  for (const auto& trainer : trainers_) {
    const bool is_first = &trainer == &trainers_.front();
    trainer->Stop(is_done    ? kLastRankGrace
                  : is_first ? kSaveGrace
                             : kLostRankGrace);
  }
}

// A trainer that was killed or crashed is restarted from its newest checkpoint,
// and so are all ranks if one is lost. A trainer that ended by itself said why
// and is not restarted.
bool RunSupervisor::MayRestartTrainers(const End& end, bool asked_to_stop) {
  const bool ended_by_signal =
      end.code > CodeOfSignal(0) && end.code != kInterruptedCode;
  const bool lost_rank = end.code == static_cast<int>(ExitCode::kRestart);
  if (!(ended_by_signal || lost_rank) || asked_to_stop) return false;
  next_trainer_start_ = trainer_restarts_.Ended(
      end.code, trainers_.front()->HasWorked(), SteadyNow());
  if (!next_trainer_start_.has_value()) return false;
  LogWarning(absl::StrCat(
      lost_rank
          ? absl::StrCat("a trainer rank was lost (code ", end.code, ")")
          : absl::StrCat(
                end.trainer->name(), " ", HowItDied(*end.trainer, end.code)),
      "; restarting from the newest checkpoint",
      InPause(*next_trainer_start_)));
  return true;
}

// Rank 0's words explain a stop. They are on our stderr; the words of the other
// ranks are only in their logs.
absl::Status RunSupervisor::FailureOf(const End& end) const {
  const ChildProcess& trainer = *end.trainer;
  std::string text;
  if (IsKill(end.code)) {
    text = FateOf(trainer, end.code, trainer_restarts_);
  } else if (!trainer.log_path().empty() && end.code != kInterruptedCode) {
    text = absl::StrCat(
        trainer.name(), " ended with code ", end.code, "; ", EndOfLog(trainer));
  } else {
    text = trainers_word_(end.code);
    const std::string ended =
        absl::StrCat("the trainer ended with code ", end.code);
    if (text.empty()) {
      text = absl::StrCat(ended, "; its last lines, above, say why");
    } else if (end.code == kInterruptedCode) {
      text = absl::StrCat(ended, ": ", text);
    }
  }
  return WithExitCode(absl::InternalError(text), OurCode(end.code));
}

absl::StatusOr<std::string> RunSupervisor::FatesOfWorkers() {
  std::string fates;
  for (Worker& worker : workers_) {
    RETURN_IF_ERROR(Look(worker));
    if (worker.restarts.ends() == 0 ||
        (!worker.next_start.has_value() && worker.process->HasWorked())) {
      continue;
    }
    if (worker.restarts.crashes() > 0) {
      return EndedRun(
          CrashText(*worker.process, worker.last_code, worker.restarts));
    }
    absl::StrAppend(&fates,
                    FateOf(*worker.process, worker.last_code, worker.restarts),
                    " (its log is ",
                    worker.process->log_path(),
                    "); ");
  }
  return fates;
}

absl::Status RunSupervisor::WhyItEnded(const End& end, bool asked_to_stop) {
  // A starting program does not catch signals yet.
  if (asked_to_stop && end.code == CodeOfSignal(SIGTERM)) {
    return absl::CancelledError("stopped before the trainer had started");
  }
  if (IsCrash(end.code)) {
    return EndedRun(CrashText(*end.trainer, end.code, trainer_restarts_));
  }
  const absl::Status failure = FailureOf(end);
  if (asked_to_stop || !MayLackWorkers(end.code)) return failure;
  ASSIGN_OR_RETURN(const std::string fates, FatesOfWorkers());
  if (fates.empty() || end.code == kInterruptedCode) return failure;
  return EndedRun(absl::StrCat(
      fates, "the trainer gave up: ", std::string(failure.message())));
}

absl::Status RunSupervisor::Look(Worker& worker) {
  ChildProcess& process = *worker.process;
  const int code = process.Poll();
  if (code < 0) return absl::OkStatus();
  worker.last_code = code;
  if (WouldEndAgain(code)) {
    return WithExitCode(
        absl::InternalError(absl::StrCat(process.name(),
                                         " ended with code ",
                                         code,
                                         " and would do so again; ",
                                         EndOfLog(process))),
        static_cast<ExitCode>(code));
  }
  worker.next_start =
      worker.restarts.Ended(code, process.HasWorked(), SteadyNow());
  if (worker.next_start.has_value()) {
    LogWarning(absl::StrCat(process.name(),
                            " ",
                            HowItDied(process, code),
                            "; restarting it",
                            InPause(*worker.next_start)));
    return absl::OkStatus();
  }
  if (IsCrash(code)) {
    return EndedRun(CrashText(process, code, worker.restarts));
  }
  return EndedRun(absl::StrCat(
      FateOf(process, code, worker.restarts), "; ", EndOfLog(process)));
}

absl::Status RunSupervisor::KeepAlive(Worker& worker) {
  RETURN_IF_ERROR(Look(worker));
  const absl::Time now = SteadyNow();
  if (!worker.next_start.has_value() || now < *worker.next_start) {
    return absl::OkStatus();
  }
  worker.next_start.reset();
  worker.restarts.Started(now);
  return worker.process->Start();
}

absl::Status RunSupervisor::Follow(const std::function<void()>& look) {
  RETURN_IF_ERROR(StartTrainers());
  bool asked_to_stop = false;
  while (true) {
    if (const auto end = PollTrainers(asked_to_stop); end.has_value()) {
      if (end->code == 0) return absl::OkStatus();
      if (!MayRestartTrainers(*end, asked_to_stop)) {
        return WhyItEnded(*end, asked_to_stop);
      }
    }
    if (StopRequests() > 1) {
      return absl::CancelledError("stopped at once by a second signal");
    }
    if (StopRequests() > 0 && !asked_to_stop) {
      LogInfo("stopping; a second Ctrl-C stops at once");
      for (const auto& trainer : trainers_) trainer->Signal(SIGTERM);
      asked_to_stop = true;
    }
    if (next_trainer_start_.has_value()) {
      if (asked_to_stop) {
        return absl::CancelledError(
            "stopped before the trainer was started again; the same command "
            "resumes the run");
      }
      if (SteadyNow() >= *next_trainer_start_) RETURN_IF_ERROR(StartTrainers());
    }
    for (Worker& worker : workers_) {
      if (asked_to_stop) break;
      if (const absl::Status kept = KeepAlive(worker); !kept.ok()) {
        StopTrainers(/*is_done=*/false);
        return kept;
      }
    }
    look();
    absl::SleepFor(kChildPollInterval);
  }
}

}  // namespace dapd
