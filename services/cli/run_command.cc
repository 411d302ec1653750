// dapd run: all three services on this machine, followed to the end.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "common/base/child_process.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/loopback_ports.h"
#include "common/base/status_macros.h"
#include "common/base/thread_share.h"
#include "common/base/visible_gpus.h"
#include "common/config/load_config.h"
#include "common/config/run_folder.h"
#include "common/config/validate_config.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

// A process that dies this often is not worth another start.
constexpr int kMaxRestarts = 20;
// ChildProcess::Poll: 128 + the signal that ended it.
constexpr int kSignalBase = 128;
constexpr int kInterruptedCode = static_cast<int>(ExitCode::kInterrupted);
// How long the other ranks may take once rank 0 is done, or one is lost.
constexpr absl::Duration kLastRankGrace = absl::Seconds(10);
constexpr absl::Duration kLostRankGrace = absl::Seconds(8);
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);

volatile std::sig_atomic_t stop_requested = 0;

void RequestStop(int /*signal*/) { stop_requested = stop_requested + 1; }

struct RunOptions {
  std::string config;
  std::vector<std::string> overrides;
  int64_t ranks = 0;  // 0: as configured
};

// "127.0.0.1:9101" -> 9101; 0 if there is no port.
int PortOf(const std::string& address) {
  std::string host;
  int port = 0;
  return SplitAddress(address, &host, &port) ? port : 0;
}

// The processes of one run.
class LocalRun {
 public:
  LocalRun(RunOptions options, Config config)
      : options_(std::move(options)),
        config_(std::move(config)),
        folder_(JoinPath(config_.run.output_dir, config_.run.name)),
        gpus_(config_.model.device == "cpu" ? std::vector<std::string>()
                                            : VisibleGpus()) {}

  absl::Status Start();
  // Blocks until the trainer has ended.
  absl::Status Follow();

 private:
  struct Worker {
    std::unique_ptr<ChildProcess> process;
    int restarts = 0;
  };

  absl::StatusOr<std::unique_ptr<ChildProcess>> MakeChild(
      const std::string& binary,
      const std::string& name,
      const std::vector<std::string>& overrides,
      const std::vector<std::string>& gpus,
      bool to_log) const;
  absl::Status AddWorkers(const std::string& role,
                          int64_t count,
                          const std::string& metrics_listen,
                          int64_t processes_each,
                          std::vector<std::string>* addresses);
  absl::Status KeepAlive(Worker& worker);
  bool MayRestartTrainers(int code, bool asked_to_stop);
  absl::Status StartTrainers();
  // The exit code that ends the run or its attempt; -1 while it goes on.
  int PollTrainers();
  absl::StatusOr<std::string> TakeAddress(int preferred_port);
  // The settings of one trainer; `status_address` gets rank 0's.
  absl::StatusOr<std::vector<std::string>> RankOverrides(
      int64_t rank, const std::string& rendezvous, std::string* status_address);

  const RunOptions options_;
  const Config config_;
  const std::string folder_;
  LoopbackPorts ports_;
  GpuDealer gpus_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<ChildProcess>> trainers_;  // by rank
  int trainer_restarts_ = 0;
};

absl::StatusOr<std::unique_ptr<ChildProcess>> LocalRun::MakeChild(
    const std::string& binary,
    const std::string& name,
    const std::vector<std::string>& overrides,
    const std::vector<std::string>& gpus,
    bool to_log) const {
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = self.parent_path() / binary;
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(path, " is not there; build it with deploy/build.sh"));
  }
  std::vector<std::string> command = {path, options_.config};
  for (const auto* list : {&options_.overrides, &overrides}) {
    for (const std::string& override : *list) {
      command.push_back("--set");
      command.push_back(override);
    }
  }
  return std::make_unique<ChildProcess>(
      name,
      command,
      to_log ? JoinPath(folder_, absl::StrCat("logs/", name, ".log")) : "",
      gpus.empty() ? std::vector<std::string>()
                   : std::vector<std::string>{GpuSetting(gpus)});
}

absl::Status LocalRun::AddWorkers(const std::string& role,
                                  int64_t count,
                                  const std::string& metrics_listen,
                                  int64_t processes_each,
                                  std::vector<std::string>* addresses) {
  // Left to themselves the processes of a role share the cores.
  int64_t threads = config_.run.num_threads;
  if (threads == 0) {
    threads = ThreadsOfEach(count * processes_each);
  }
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string address, TakeAddress(0));
    addresses->push_back(address);
    std::vector<std::string> overrides = {
        absl::StrCat(role, ".listen=", address),
        absl::StrCat("run.num_threads=", threads)};
    if (!metrics_listen.empty()) {
      // The first worker takes the configured port, the next ones 10 further
      // on.
      const int base = PortOf(metrics_listen);
      ASSIGN_OR_RETURN(
          const std::string metrics,
          TakeAddress(base == 0 ? 0 : base + 10 * static_cast<int>(i)));
      overrides.push_back(absl::StrCat("metrics.", role, "_listen=", metrics));
    }
    const std::string name = absl::StrCat(role, "-", i);
    Worker worker;
    ASSIGN_OR_RETURN(worker.process,
                     MakeChild(absl::StrCat("dapd-", role),
                               name,
                               overrides,
                               gpus_.Deal(static_cast<size_t>(processes_each)),
                               /*to_log=*/true));
    RETURN_IF_ERROR(worker.process->Start());
    LogInfo(absl::StrCat("started ", name, " on ", address));
    workers_.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalRun::TakeAddress(int preferred_port) {
  ASSIGN_OR_RETURN(const int port, ports_.Take(preferred_port));
  return absl::StrCat("127.0.0.1:", port);
}

absl::Status LocalRun::Start() {
  const bool resumed = FileExists(JoinPath(folder_, "config.yaml"));
  const bool finished = FinishedStep(folder_) >= config_.trainer.steps;
  if (resumed && (finished || config_.run.resume == "never")) {
    return ConfigError(
        absl::StrCat(folder_,
                     " already holds a ",
                     finished ? "finished run" : "run",
                     "; choose another run.name (--set run.name=...) or "
                     "remove that folder"));
  }
  RETURN_IF_ERROR(MakeDirectories(JoinPath(folder_, "logs")));
  // Ranks first: no two of them may share a GPU, workers may.
  std::vector<std::vector<std::string>> gpus_of_rank;
  for (int64_t rank = 0; rank < config_.trainer.ranks; ++rank) {
    gpus_of_rank.push_back(gpus_.Deal(1));
  }
  std::vector<std::string> rollouts;
  std::vector<std::string> teachers;
  RETURN_IF_ERROR(AddWorkers("rollout",
                             config_.run.rollout_workers,
                             config_.metrics.rollout_listen,
                             config_.rollout.tensor_parallel,
                             &rollouts));
  RETURN_IF_ERROR(AddWorkers("teacher",
                             config_.run.teacher_workers,
                             config_.metrics.teacher_listen,
                             /*processes_each=*/1,
                             &teachers));
  ASSIGN_OR_RETURN(const std::string listen,
                   TakeAddress(PortOf(config_.trainer.listen)));
  std::vector<std::string> overrides = {
      absl::StrCat("rollout.addresses=[", absl::StrJoin(rollouts, ","), "]"),
      absl::StrCat("teacher.addresses=[", absl::StrJoin(teachers, ","), "]")};
  std::string status_address;
  ASSIGN_OR_RETURN(const std::string rendezvous, TakeAddress(0));
  for (int64_t rank = 0; rank < config_.trainer.ranks; ++rank) {
    ASSIGN_OR_RETURN(
        const std::vector<std::string> of_rank,
        RankOverrides(rank, rendezvous, rank == 0 ? &status_address : nullptr));
    std::vector<std::string> all = overrides;
    all.insert(all.end(), of_rank.begin(), of_rank.end());
    const std::string name =
        rank == 0 ? "trainer" : absl::StrCat("trainer-", rank);
    ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> trainer,
                     MakeChild("dapd-trainer",
                               name,
                               all,
                               gpus_of_rank[static_cast<size_t>(rank)],
                               /*to_log=*/rank != 0));
    trainers_.push_back(std::move(trainer));
  }
  RETURN_IF_ERROR(StartTrainers());
  LogInfo(absl::StrCat("started the trainer; watch it with: dapd status ",
                       status_address,
                       "; logs of the others: ",
                       folder_,
                       "/logs"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> LocalRun::RankOverrides(
    int64_t rank, const std::string& rendezvous, std::string* status_address) {
  const bool first = rank == 0;
  ASSIGN_OR_RETURN(const std::string listen,
                   TakeAddress(first ? PortOf(config_.trainer.listen) : 0));
  if (first) *status_address = listen;
  std::vector<std::string> overrides = {
      absl::StrCat("trainer.listen=", listen),
      absl::StrCat("trainer.ranks=", config_.trainer.ranks),
      absl::StrCat("trainer.rank=", rank),
      absl::StrCat("trainer.rendezvous=", rendezvous)};
  if (config_.trainer.ranks > 1 && config_.run.num_threads == 0) {
    // Ranks must compute with as many threads as each other, and share the
    // cores.
    overrides.push_back(
        absl::StrCat("run.num_threads=", ThreadsOfEach(config_.trainer.ranks)));
  }
  if (!config_.metrics.trainer_listen.empty()) {
    const int base = PortOf(config_.metrics.trainer_listen);
    ASSIGN_OR_RETURN(
        const std::string metrics,
        TakeAddress(base == 0 ? 0 : base + 10 * static_cast<int>(rank)));
    overrides.push_back(absl::StrCat("metrics.trainer_listen=", metrics));
    if (first) {
      LogInfo(
          absl::StrCat("metrics of the trainer: http://", metrics, "/metrics"));
      LogInfo(absl::StrCat("status page: http://", metrics, "/"));
    }
  }
  return overrides;
}

absl::Status LocalRun::StartTrainers() {
  for (const auto& trainer : trainers_) RETURN_IF_ERROR(trainer->Start());
  return absl::OkStatus();
}

// Rank 0 ends the run; another rank that fails ends the attempt of all.
int LocalRun::PollTrainers() {
  int result = -1;
  for (const auto& trainer : trainers_) {
    const int code = trainer->Poll();
    if (code > 0 || (code == 0 && trainer == trainers_.front())) {
      result = std::max(result, code);
    }
  }
  if (result < 0) return result;
  // A rank that was killed explains why the others end: they are given the
  // time to say so, and no more.
  for (const auto& trainer : trainers_) {
    trainer->Stop(result == 0 ? kLastRankGrace : kLostRankGrace);
  }
  return result;
}

absl::Status LocalRun::KeepAlive(Worker& worker) {
  ChildProcess& process = *worker.process;
  const int code = process.Poll();
  if (code < 0) return absl::OkStatus();
  const bool hopeless = code == static_cast<int>(ExitCode::kConfig) ||
                        code == static_cast<int>(ExitCode::kData) ||
                        code == static_cast<int>(ExitCode::kUsage);
  if (hopeless || worker.restarts >= kMaxRestarts) {
    return WithExitCode(absl::InternalError(absl::StrCat(
                            process.name(),
                            " ended with code ",
                            code,
                            " and would again; the end of its log (",
                            process.log_path(),
                            "):\n",
                            process.LogTail())),
                        static_cast<ExitCode>(code));
  }
  ++worker.restarts;
  LogWarning(absl::StrCat(
      process.name(), " ended with code ", code, "; starting it again"));
  return process.Start();
}

// A trainer that was killed goes on behind its newest checkpoint, and so do all
// ranks when one is lost; a trainer that ended by itself said why.
bool LocalRun::MayRestartTrainers(int code, bool asked_to_stop) {
  const bool killed = code > kSignalBase && code != kInterruptedCode;
  const bool lost_rank = code == static_cast<int>(ExitCode::kRestart);
  if (!(killed || lost_rank) || asked_to_stop ||
      trainer_restarts_ >= kMaxRestarts) {
    return false;
  }
  ++trainer_restarts_;
  LogWarning(
      absl::StrCat(killed ? "a trainer was killed" : "a trainer rank was lost",
                   " (code ",
                   code,
                   "); starting again behind the newest checkpoint"));
  return true;
}

absl::Status LocalRun::Follow() {
  bool asked_to_stop = false;
  while (true) {
    if (const int code = PollTrainers(); code >= 0) {
      if (code == 0) return absl::OkStatus();
      if (MayRestartTrainers(code, asked_to_stop)) {
        RETURN_IF_ERROR(StartTrainers());
        continue;
      }
      return WithExitCode(
          absl::InternalError(absl::StrCat(
              "the trainer ended with code ", code, "; see above")),
          static_cast<ExitCode>(code));
    }
    if (stop_requested > 1) {
      return absl::CancelledError("stopped at once by a second signal");
    }
    if (stop_requested > 0 && !asked_to_stop) {
      LogInfo("stopping; a second Ctrl-C stops at once");
      for (const auto& trainer : trainers_) trainer->Signal(SIGTERM);
      asked_to_stop = true;
    }
    for (Worker& worker : workers_) {
      if (!asked_to_stop) RETURN_IF_ERROR(KeepAlive(worker));
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::Status Run(RunOptions options) {
  SetLogName("run");
  if (options.ranks > 0) {
    options.overrides.push_back(absl::StrCat("trainer.ranks=", options.ranks));
  }
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  for (const int signal_number : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    action.sa_handler = RequestStop;
    ::sigaction(signal_number, &action, nullptr);
  }
  // The processes share the cores: a thread that spins while it waits would
  // take them from the others. A user's own setting stays.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  LocalRun run(options, loaded.config);
  RETURN_IF_ERROR(run.Start());
  return run.Follow();
}

}  // namespace

void AddRunCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "All three services on this machine, followed to the end");
  command->add_option("config", options->config, "YAML configuration")
      ->required();
  command->add_option("--set", options->overrides, "key=value over the file");
  command->add_option(
      "--ranks", options->ranks, "Trainer processes (trainer.ranks)");
  command->callback(
      [options, action] { *action = [options] { return Run(*options); }; });
}

}  // namespace dapd
