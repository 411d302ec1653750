#include "services/rollout/tensor_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/error_output.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/loopback_ports.h"
#include "common/base/process_end.h"
#include "common/base/random_name.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/stop_requests.h"
#include "common/base/this_program.h"
#include "common/base/visible_gpus.h"
#include "common/collective/rank_follower.h"
#include "common/collective/rank_leader.h"
#include "common/gpus/gpu_report.h"
#include "common/gpus/rank_device.h"

namespace dapd {
namespace {

// A secret between the ranks of one worker: a stranger who finds the port
// cannot join.
constexpr char kKeyVariable[] = "DAPD_TENSOR_RANKS_KEY";

RankOptions MakeOptions(const Config& config,
                        const TensorRank& place,
                        std::string key,
                        bool on_gpu) {
  return {
      .rank = place.rank,
      .world_size = static_cast<int>(config.rollout.tensor_parallel),
      .rendezvous = place.rendezvous,
      .identity = std::move(key),
      .device = RankDevice(on_gpu),
      .operation_timeout = absl::Seconds(config.trainer.rank_timeout_seconds),
      .called = "rollout rank",
      .when_lost = "the worker ends; its supervisor has to start it again"};
}

pid_t rank_zero = 0;

// The exit code of a crashed rank that has been seen; 0: none crashed.
std::atomic<int> crash_code = 0;

// Returns the exit code for this process: the code of a crashed rank, if there
// is one, else kRestart. A connection may break before the process of the
// crashed rank is gone.
int CodeOfLostRanks() {
  constexpr absl::Duration kGrace = absl::Milliseconds(500);
  const absl::Time deadline = SteadyNow() + kGrace;
  while (crash_code == 0 && SteadyNow() < deadline) {
    siginfo_t end = {};
    // WNOWAIT, because ChildProcess waits for the child.
    if (::waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) != 0) break;
    if (end.si_pid == 0) {
      absl::SleepFor(absl::Milliseconds(10));
      continue;
    }
    const int code = CodeOfSignal(end.si_status);
    if (end.si_code != CLD_EXITED && IsCrash(code)) return code;
    break;
  }
  return crash_code == 0 ? static_cast<int>(ExitCode::kRestart)
                         : crash_code.load();
}

// The kernel sends the signal in the name of rank 0 when rank 0 has died.
void EndIfRankZeroSaysSo(int number, siginfo_t* info, void* /*context*/) {
  if (info->si_pid == rank_zero) ::_exit(CodeOfSignal(number));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorRanks>> TensorRanks::Start(
    const Config& config, const std::vector<std::string>& arguments) {
  std::unique_ptr<TensorRanks> ranks(new TensorRanks());
  ASSIGN_OR_RETURN(const int port, LoopbackPorts().Take(0));
  const TensorRank first = {.rank = 0,
                            .rendezvous = absl::StrCat("127.0.0.1:", port)};
  const std::string key = RandomName();
  const std::vector<std::string> gpus = GpusToComputeOn(config.model.device);
  const bool on_gpus =
      config.model.device == DeviceChoice::kCuda || !gpus.empty();
  const bool may_share = RanksMayShareAGpu() && !gpus.empty();
  if (on_gpus && !may_share &&
      gpus.size() < static_cast<size_t>(config.rollout.tensor_parallel)) {
    return ConfigError(absl::StrCat("rollout.tensor_parallel is ",
                                    config.rollout.tensor_parallel,
                                    ", but this worker sees ",
                                    gpus.size(),
                                    " GPUs; each process needs its own"));
  }
  const std::string program = ThisProgram();
  for (int rank = 1; rank < config.rollout.tensor_parallel; ++rank) {
    std::vector<std::string> command = {program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.insert(command.end(),
                   {"--tensor-rank",
                    absl::StrCat(rank),
                    "--rendezvous",
                    first.rendezvous});
    std::vector<std::string> environment = {
        absl::StrCat(kKeyVariable, "=", key)};
    if (!gpus.empty()) {
      environment.push_back(
          GpuSetting({gpus[static_cast<size_t>(rank) % gpus.size()]}));
    }
    auto child = std::make_unique<ChildProcess>(absl::StrCat("rank ", rank),
                                                std::move(command),
                                                /*log_path=*/"",
                                                std::move(environment));
    RETURN_IF_ERROR(child->Start());
    ranks->children_.push_back(std::move(child));
  }
  RankOptions options = MakeOptions(config, first, key, !gpus.empty());
  std::string lost;  // the rank that ended while the others were awaited
  auto code_of_lost = static_cast<int>(ExitCode::kRestart);
  options.gives_up = [&children = ranks->children_, &lost, &code_of_lost] {
    for (const std::unique_ptr<ChildProcess>& child : children) {
      const int code = child->Poll();
      if (code < 0) continue;
      lost = absl::StrCat(child->name(), " ", child->HowItEnded(code));
      if (IsCrash(code)) code_of_lost = code;
    }
    return !lost.empty();
  };
  auto collective = StartRankLeader(options);
  if (!lost.empty()) {
    return WithExitCode(
        absl::AbortedError(absl::StrCat(lost, " before it had joined")),
        static_cast<ExitCode>(code_of_lost));
  }
  ASSIGN_OR_RETURN(ranks->collective_, std::move(collective));
  ranks->watcher_ =
      std::jthread([&children = ranks->children_](const std::stop_token& stop) {
        Watch(children, stop);
      });
  return ranks;
}

void TensorRanks::Watch(
    const std::vector<std::unique_ptr<ChildProcess>>& children,
    const std::stop_token& stop) {
  constexpr absl::Duration kInterval = absl::Milliseconds(200);
  while (!stop.stop_requested()) {
    absl::SleepFor(kInterval);
    for (const std::unique_ptr<ChildProcess>& child : children) {
      const int code = child->Poll();
      if (code < 0) continue;
      if (IsCrash(code)) crash_code = code;
      EndWithRanks(absl::AbortedError(
          absl::StrCat(child->name(), " ", child->HowItEnded(code))));
    }
  }
}

void TensorRanks::EndWithRanks(const absl::Status& status) {
  LogError(absl::StrCat("the ranks of this worker are lost: ",
                        std::string(status.message())));
  FlushErrorOutput();
  ::_exit(CodeOfLostRanks());
}

void HeedRankZeroAlone() {
  rank_zero = ::getppid();
  struct sigaction action = {};
  action.sa_sigaction = EndIfRankZeroSaysSo;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number : StopSignals()) {
    ::sigaction(number, &action, nullptr);
  }
}

absl::StatusOr<std::unique_ptr<Collective>> JoinTensorRanks(
    const Config& config, const TensorRank& place) {
  const char* key = std::getenv(kKeyVariable);
  return JoinRankLeader(
      MakeOptions(config,
                  place,
                  key == nullptr ? "" : key,
                  !GpusToComputeOn(config.model.device).empty()));
}

}  // namespace dapd
