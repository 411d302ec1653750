#include "services/trainer/local_ranks.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <ranges>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/child_process.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/process_end.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/this_program.h"
#include "common/base/thread_share.h"
#include "common/base/visible_gpus.h"
#include "common/config/rank_place.h"
#include "common/config/run_folder.h"
#include "common/config/validate_config.h"
#include "common/config/yaml_text.h"
#include "common/gpus/gpu_report.h"
#include "common/rpc/pool/address_resolver.h"
#include "services/trainer/rank_grace.h"
#include "services/trainer/record/attempt_end.h"

namespace dapd {
namespace {

constexpr int kPortStep = 10;
constexpr int kInterruptedCode = static_cast<int>(ExitCode::kInterrupted);
constexpr int kRestartCode = static_cast<int>(ExitCode::kRestart);

bool RunsOnGpus(const Config& config, const std::vector<std::string>& gpus) {
  return config.model.device == DeviceChoice::kCuda ||
         (config.model.device == DeviceChoice::kAuto && !gpus.empty());
}

// Returns key="address" with the port of the `index`-th rank here. The address
// stays as configured if the system chooses the port or nothing listens.
std::string ListenOverride(const std::string& key,
                           const std::string& configured,
                           int64_t index) {
  std::string host;
  int port = 0;
  if (!SplitAddress(configured, &host, &port) || port == 0) {
    return TextOverride(key, configured);
  }
  return TextOverride(
      key, JoinHostPort(host, port + kPortStep * static_cast<int>(index)));
}

int PriorityOf(int code) {
  if (code == 0) return 0;
  if (code == kInterruptedCode) return 1;
  const bool is_killed = code > CodeOfSignal(0) && !IsCrash(code);
  if (code == kRestartCode || is_killed) return 2;
  return 3;
}

class RunningRanks {
 public:
  absl::Status Start(std::vector<std::unique_ptr<ChildProcess>> processes) {
    processes_ = std::move(processes);
    for (const auto& process : processes_) RETURN_IF_ERROR(process->Start());
    return absl::OkStatus();
  }

  void Signal(int signal_number) {
    for (const auto& process : processes_) process->Signal(signal_number);
  }

  // Notes which ranks have ended.
  void Poll() {
    for (const auto& process : processes_) {
      if (const int code = process->Poll(); code >= 0) Note(*process, code);
    }
  }

  // Waits until all ranks have ended, at most for `grace`.
  void WaitFor(absl::Duration grace) {
    const absl::Time deadline = SteadyNow() + grace;
    while (running() && SteadyNow() < deadline) {
      absl::SleepFor(kChildPollInterval);
      Poll();
    }
  }

  // Sends SIGTERM to the remaining ranks and, after `grace`, SIGKILL, which
  // leaves no reason behind. The first rank gets `grace_of_first`.
  void End(absl::Duration grace, absl::Duration grace_of_first) {
    Signal(SIGTERM);
    WaitFor(grace);
    for (const auto& process : processes_ | std::views::drop(1)) {
      process->Stop(absl::ZeroDuration());
    }
    WaitFor(grace_of_first - grace);
    processes_.front()->Stop(absl::ZeroDuration());
  }

  bool running() const {
    return std::ranges::any_of(
        processes_, [](const auto& process) { return process->running(); });
  }
  bool first_is_done() const { return first_is_done_; }
  bool any_failed() const {
    return std::ranges::any_of(codes_, [](int code) { return code != 0; });
  }
  const std::vector<int>& codes() const { return codes_; }
  const std::string& cause() const { return cause_; }

 private:
  void Note(const ChildProcess& process, int code) {
    codes_.push_back(code);
    if (code == 0) {
      first_is_done_ |= &process == processes_.front().get();
      return;
    }
    const std::string how =
        absl::StrCat(process.name(), " ", process.HowItEnded(code));
    LogWarning(how);
    if (cause_.empty() || PriorityOf(code) > PriorityOf(cause_code_)) {
      cause_ = how;
      cause_code_ = code;
    }
  }

  std::vector<std::unique_ptr<ChildProcess>> processes_;
  std::vector<int> codes_;  // of the ranks that have ended
  std::string cause_;       // how the rank with the most telling code ended
  int cause_code_ = 0;
  bool first_is_done_ = false;
};

absl::StatusOr<std::vector<std::unique_ptr<ChildProcess>>> MakeProcesses(
    const std::string& config_path,
    const std::vector<std::string>& overrides,
    const Config& config) {
  const std::string program = ThisProgram();
  ASSIGN_OR_RETURN(
      const std::vector<LocalRank> ranks,
      PlanLocalRanks(config, GpusToComputeOn(config.model.device)));
  const std::vector<std::string> all_ranks = AttemptEnd::TrainerOverrides();
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (const LocalRank& rank : ranks) {
    std::vector<std::string> command = {program, config_path};
    for (const auto* list : {&overrides, &rank.overrides, &all_ranks}) {
      for (const std::string& override : *list) {
        command.push_back("--set");
        command.push_back(override);
      }
    }
    auto process =
        std::make_unique<ChildProcess>(absl::StrCat("rank ", rank.rank),
                                       std::move(command),
                                       /*log_path=*/"",
                                       rank.environment);
    if (LogsJson()) {
      // Lines that a library prints are no JSON, which would break the reader
      // of our output.
      process->RelayLines(
          [source = LogSource{.service = "trainer",
                              .run = config.run.name,
                              .rank = rank.rank}](absl::string_view line) {
            PassOnLog(line, source);
          });
    }
    processes.push_back(std::move(process));
  }
  return processes;
}

// Follows the ranks to their end; `look` is called several times a second.
absl::Status FollowRanks(std::vector<std::unique_ptr<ChildProcess>> processes,
                         bool has_rank_zero,
                         ShutdownSignal& signal,
                         const std::function<void()>& look) {
  const absl::Duration grace_of_first =
      has_rank_zero ? kSaveGrace : kLostRankGrace;
  RunningRanks ranks;
  RETURN_IF_ERROR(ranks.Start(std::move(processes)));
  bool told = false;
  while (ranks.running()) {
    if (signal.requested() && !std::exchange(told, true)) ranks.Signal(SIGTERM);
    look();
    absl::SleepFor(kChildPollInterval);
    ranks.Poll();
    if (has_rank_zero && ranks.first_is_done()) {
      ranks.WaitFor(kLastRankGrace);
      ranks.End(kLostRankGrace, kLostRankGrace);
      return absl::OkStatus();
    }
    // Ranks that were told to end will end by themselves.
    if (!told && ranks.any_failed()) {
      ranks.End(kLostRankGrace, grace_of_first);
    }
  }
  // Once the ranks were asked to end, it is expected that a rank misses
  // another.
  const bool interrupted =
      told && std::ranges::count(ranks.codes(), kInterruptedCode) > 0;
  const int code = interrupted ? kInterruptedCode : CodeOfRanks(ranks.codes());
  if (code == 0) return absl::OkStatus();
  return WithExitCode(absl::InternalError(absl::StrCat(
                          ranks.cause(), "; the lines above say why")),
                      static_cast<ExitCode>(code));
}

}  // namespace

absl::StatusOr<std::vector<LocalRank>> PlanLocalRanks(
    const Config& config, const std::vector<std::string>& gpus) {
  const TrainerSection& trainer = config.trainer;
  const int64_t here = trainer.ranks_per_machine;
  const bool on_gpus = RunsOnGpus(config, gpus);
  if (on_gpus && static_cast<int64_t>(gpus.size()) < here) {
    return ConfigError(absl::StrCat("trainer.ranks_per_machine is ",
                                    here,
                                    ", but this machine or pod has ",
                                    gpus.size(),
                                    " GPUs; each rank needs its own: add GPUs, "
                                    "or lower trainer.ranks_per_machine"));
  }
  const bool finished = HasFinished(FolderOf(config.run), trainer.steps);
  std::vector<LocalRank> ranks;
  for (int64_t index = 0; index < (finished ? 1 : here); ++index) {
    LocalRank local{.rank = trainer.rank + index};
    local.overrides = SettingsOfRank(trainer.ranks, local.rank);
    local.overrides.push_back(
        ListenOverride("trainer.listen", trainer.listen, index));
    local.overrides.push_back(ListenOverride(
        "metrics.trainer_listen", config.metrics.trainer_listen, index));
    // All ranks must compute with equally many threads, and they share the
    // cores.
    if (config.run.num_threads == 0) {
      local.overrides.push_back(
          absl::StrCat("run.num_threads=", ThreadsOfEach(here)));
    }
    if (on_gpus) {
      local.environment = {GpuSetting({gpus[static_cast<size_t>(index)]})};
    }
    ranks.push_back(std::move(local));
  }
  return ranks;
}

int CodeOfRanks(const std::vector<int>& codes) {
  if (codes.empty()) return 0;
  const int code = *std::ranges::max_element(codes, {}, PriorityOf);
  return PriorityOf(code) == 2 ? kRestartCode : code;
}

absl::Status RunLocalRanks(const std::string& config_path,
                           const std::vector<std::string>& overrides,
                           const Config& config,
                           ShutdownSignal& signal) {
  ASSIGN_OR_RETURN(auto processes,
                   MakeProcesses(config_path, overrides, config));
  LogInfo(
      absl::StrCat("this machine runs ranks ",
                   config.trainer.rank,
                   " to ",
                   config.trainer.rank + config.trainer.ranks_per_machine - 1,
                   " of ",
                   config.trainer.ranks));
  // Only rank 0 has the run's folder. No wait gives up early: a second signal
  // ends the process at once.
  if (config.trainer.machine != 0) {
    return FollowRanks(std::move(processes), false, signal, [] {});
  }
  ASSIGN_OR_RETURN(AttemptEnd end,
                   AttemptEnd::Create(config, [] { return false; }));
  const absl::Status outcome = FollowRanks(
      std::move(processes), true, signal, [&] { end.TellIfDone(); });
  end.Tell(outcome);
  return outcome;
}

}  // namespace dapd
