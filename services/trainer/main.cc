// dapd-trainer CONFIG [--set key=value]... [--listen ADDR]
//
// The trainer: drives the rollout and teacher workers, computes the losses,
// updates the adapter. Ends after trainer.steps with exit code 0, or with
// trainer.when_done: serve, stays until a signal. With
// trainer.ranks_per_machine it is that many processes.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/command_line.h"
#include "common/base/crash_report.h"
#include "common/base/cuda_environment.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/this_program.h"
#include "common/collective/ended_job.h"
#include "common/collective/rank_follower.h"
#include "common/collective/rank_leader.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/config/run_folder.h"
#include "common/config/service_flags.h"
#include "common/config/set_up_log.h"
#include "common/config/validate_config.h"
#include "common/data/held_out_prompt.h"
#include "common/grader/grading_desk.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/rpc_credentials.h"
#include "common/rpc/server/server.h"
#include "common/rpc/server/shutdown_signal.h"
#include "common/security/security.h"
#include "common/timeline/timeline.h"
#include "services/trainer/copy/run_copier.h"
#include "services/trainer/local_ranks.h"
#include "services/trainer/record/end_notice.h"
#include "services/trainer/record/run_outcome.h"
#include "services/trainer/status/run_window.h"
#include "services/trainer/trainer_run.h"
#include "services/trainer/workers/teacher_clients.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {
namespace {

// The pause before the rendezvous is tried again.
constexpr absl::Duration kRendezvousPause = absl::Seconds(5);

// The parts of this process, whether it trains or shows a finished run.
struct TrainerProcess {
  const LoadedConfig& loaded;
  std::shared_ptr<const RpcCredentials> credentials;
  RunWindow& window;
  EndNotice& notice;
  ShutdownSignal& signal;

  const Config& config() const { return loaded.config; }
  // Returns a function that blocks for at most the given time and returns true
  // once there is a signal.
  std::function<bool(absl::Duration)> WaitForStop() const {
    return [&waited = signal](absl::Duration timeout) {
      return waited.WaitFor(timeout);
    };
  }
};

// The clients of a run's workers, and its grader.
struct WorkerClients {
  std::unique_ptr<Timeline> timeline;  // outlives the clients; null: none
  std::unique_ptr<RolloutClient> rollouts;
  std::unique_ptr<TeacherClient> teachers;
  std::unique_ptr<GradingDesk> grader;  // null: the built-in grader grades
};

// Returns null if no timeline is wanted or if the run folder is not on this
// rank's machine.
std::unique_ptr<Timeline> MakeTimeline(const Config& config) {
  const TrainerSection& trainer = config.trainer;
  if (trainer.timeline_steps == 0) return nullptr;
  const std::string folder = FolderOf(config.run);
  if (!FileExists(folder)) {
    LogWarning(absl::StrCat("this rank writes no timeline: there is no ",
                            folder,
                            " on this machine"));
    return nullptr;
  }
  const std::string name =
      trainer.rank == 0 ? "timeline.json"
                        : absl::StrCat("timeline-rank-", trainer.rank, ".json");
  return std::make_unique<Timeline>(
      Timeline::Options{.path = JoinPath(folder, name),
                        .steps = trainer.timeline_steps,
                        .rank = trainer.rank});
}

// `is_asked`: whether the objective needs this role. Workers that it does not
// need may be down, and no alert misses them.
WorkerClientOptions MakeClientOptions(
    const TrainerProcess& process,
    const TrainerRun& run,
    Timeline* timeline,
    const char* role,
    bool is_asked,
    const std::vector<std::string>& addresses) {
  const Config& config = process.config();
  WorkerClientOptions options;
  options.credentials = process.credentials;
  options.expected = run.ExpectedWorkers();
  options.task_timeout = AnswerTimeout(
      absl::Seconds(config.trainer.rpc_timeout_seconds),
      std::max(config.rollout.max_new_tokens, HeldOutAnswerTokens(config)));
  options.peer_timeout = absl::Seconds(config.trainer.peer_timeout_seconds);
  options.timeline = timeline;
  if (is_asked) {
    options.addresses = addresses;
    options.observer = process.window.metrics().PoolObserver(role);
  }
  return options;
}

// Starts the client of the student's own teachers, for which `own` is, and of
// all further teachers.
absl::StatusOr<std::unique_ptr<TeacherClient>> StartTeachers(
    const TrainerProcess& process,
    const std::map<std::string, ExpectedWorker>& expected,
    WorkerClientOptions own) {
  if (expected.empty()) return TeacherClient::Start(std::move(own));
  std::map<std::string, WorkerClientOptions> further;
  for (const TeacherModel& teacher : process.config().teachers) {
    const auto found = expected.find(teacher.name);
    if (found == expected.end()) continue;
    WorkerClientOptions& options = further[teacher.name] = own;
    options.expected = found->second;
    options.addresses = teacher.addresses;
    options.observer =
        process.window.metrics().PoolObserver("teacher", teacher.name);
  }
  return TeacherClients::Start(std::move(own), std::move(further));
}

absl::StatusOr<WorkerClients> StartClients(const TrainerProcess& process,
                                           const TrainerRun& run) {
  const Config& config = process.config();
  const bool asks_rollouts = AsksRolloutWorkers(config);
  const bool asks_teachers = AsksTeachers(config);
  for (const auto& [role, asks] :
       {std::pair{"rollout workers", asks_rollouts},
        {"teachers of the student's own model", asks_teachers}}) {
    if (!asks) LogInfo(absl::StrCat("the objective needs no ", role));
  }
  WorkerClients clients{.timeline = MakeTimeline(config)};
  Timeline* const timeline = clients.timeline.get();
  ASSIGN_OR_RETURN(
      clients.rollouts,
      RolloutClient::Start(MakeClientOptions(process,
                                             run,
                                             timeline,
                                             "rollout",
                                             asks_rollouts,
                                             config.rollout.addresses)));
  auto teachers = MakeClientOptions(process,
                                    run,
                                    timeline,
                                    "teacher",
                                    asks_teachers,
                                    config.teacher.addresses);
  teachers.connections = config.teacher.connections;
  ASSIGN_OR_RETURN(
      clients.teachers,
      StartTeachers(process, run.ExpectedTeachers(), std::move(teachers)));
  return clients;
}

absl::StatusOr<std::unique_ptr<Collective>> JoinRanks(
    const TrainerProcess& process, const TrainerRun& run) {
  const TrainerSection& trainer = process.config().trainer;
  if (trainer.ranks == 1) return MakeSingleRank();
  const RankOptions options{
      .rank = static_cast<int>(trainer.rank),
      .world_size = static_cast<int>(trainer.ranks),
      .rendezvous = trainer.rendezvous,
      .credentials = process.credentials,
      .identity = run.Identity(),
      .device = run.Device(),
      .join_timeout = absl::Seconds(trainer.peer_timeout_seconds),
      .gives_up = [&signal = process.signal] { return signal.requested(); },
      .operation_timeout = absl::Seconds(trainer.rank_timeout_seconds)};
  return options.rank == 0 ? StartRankLeader(options) : JoinRankLeader(options);
}

bool StaysWhenDone(const Config& config) {
  return config.trainer.when_done == WhenDone::kServe;
}

// Tells restarted ranks that the run is over, while the result lives. Returns
// null once there is a signal. For a while the rendezvous' name may still
// belong to the machine where this rank ran before, and serving fails.
std::unique_ptr<EndedJob> ServeEndedJob(const TrainerProcess& process) {
  absl::Status failure;
  while (!process.signal.requested()) {
    auto served = EndedJob::Serve(process.config().trainer.rendezvous,
                                  process.credentials);
    if (served.ok()) return *std::move(served);
    if (std::exchange(failure, served.status()).ok()) {
      LogWarning(absl::StrCat(
          "restarted ranks are not told yet that the run is over: ",
          std::string(failure.message())));
    }
    process.signal.WaitFor(kRendezvousPause);
  }
  return nullptr;
}

void ServeUntilSignal(const TrainerProcess& process, RpcServer& server) {
  server.SetServing(true);
  LogInfo(absl::StrCat("the run is done; serving its status on ",
                       server.address(),
                       " until a signal"));
  const TrainerSection& trainer = process.config().trainer;
  std::unique_ptr<EndedJob> ended;
  if (trainer.rank == 0 && trainer.ranks > 1) ended = ServeEndedJob(process);
  process.signal.Wait();
}

// Joins the other ranks and trains with them.
absl::Status TrainWithRanks(const TrainerProcess& process,
                            TrainerRun& run,
                            const WorkerClients& clients,
                            RpcServer& server) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Collective> collective,
                   JoinRanks(process, run));
  server.SetServing(true);
  LogInfo(absl::StrCat("training; status on ", server.address()));

  // A signal ends the clients' waits, and with them the loop.
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!process.signal.WaitFor(absl::Milliseconds(200))) continue;
      clients.rollouts->Shutdown();
      clients.teachers->Shutdown();
      if (clients.grader != nullptr) clients.grader->Shutdown();
      collective->Cancel();
      return;
    }
  });
  return run.Train(*clients.rollouts,
                   *clients.teachers,
                   *collective,
                   clients.timeline.get(),
                   clients.grader.get(),
                   process.WaitForStop());
}

// Trains the loaded run with workers and other ranks. Once it is finished,
// tells of its end before the process stays for its status.
absl::Status TrainLoaded(const TrainerProcess& process,
                         TrainerRun& run,
                         std::unique_ptr<GradingDesk> grader) {
  ASSIGN_OR_RETURN(WorkerClients clients, StartClients(process, run));
  clients.grader = std::move(grader);
  process.window.status().SetWorkers(
      [&clients] { return clients.rollouts->Workers(); },
      [&clients] { return clients.teachers->Workers(); });
  const absl::Cleanup forget_workers = [&process] {
    process.window.status().SetWorkers({}, {});
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                   process.window.ServeRpc());
  // The other ranks may come late, and a restart of this rank would not help.
  server->SetStarted();
  const absl::Status result = TrainWithRanks(process, run, clients, *server);
  if (result.ok()) {
    // The order matters: a process that is killed in between tells again
    // (TellIfUntold).
    process.notice.Tell(absl::OkStatus());
    run.RecordOutcome(absl::OkStatus());
    if (StaysWhenDone(process.config())) ServeUntilSignal(process, *server);
  }
  server->SetServing(false);
  server->Shutdown(absl::Seconds(1));
  return result;
}

// Returns null if the built-in grader grades.
absl::StatusOr<std::unique_ptr<GradingDesk>> OpenGrader(
    const TrainerProcess& process) {
  const GraderSection& grader = process.config().grader;
  if (!grader.is_given()) return nullptr;
  return GradingDesk::Open(grader,
                           process.window.metrics().MakeGradingObserver());
}

// Writes into the run folder why the run could not be loaded: `dapd run`, which
// made the folder, would otherwise know no more than the exit code.
void KeepEarlyFailure(const Config& config,
                      const absl::Status& status,
                      absl::Time start) {
  const std::string folder = FolderOf(config.run);
  if (config.trainer.rank != 0 || !FileExists(folder)) return;
  CorrectOutcome(folder, status, start);
}

// Loads the run and trains it to its end.
absl::Status Train(const TrainerProcess& process) {
  const absl::Time start = absl::Now();
  // A grader that cannot be used is reported before the model is loaded.
  auto grader = OpenGrader(process);
  if (!grader.ok()) {
    KeepEarlyFailure(process.config(), grader.status(), start);
    return grader.status();
  }
  auto loading = TrainerRun::Load(
      process.loaded, process.window.displays(), process.WaitForStop());
  if (!loading.ok()) {
    KeepEarlyFailure(process.config(), loading.status(), start);
    return loading.status();
  }
  const std::unique_ptr<TrainerRun> run = *std::move(loading);
  const absl::Status result = TrainLoaded(process, *run, *std::move(grader));
  if (!result.ok()) run->RecordOutcome(result);
  return result;
}

absl::Status Run(const ServiceFlags& flags) {
  ShutdownSignal signal;
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(flags.config, flags.Overrides()));
  const Config& config = loaded.config;
  RETURN_IF_ERROR(CheckTrains(config));
  if (config.trainer.ranks_per_machine > 1) {
    return RunLocalRanks(flags.config, flags.Overrides(), config, signal);
  }
  const std::string folder = FolderOf(config.run);
  // Every rank checks this itself: if the run is finished, there may be no rank
  // 0 to tell the others.
  const bool finished = HasFinished(folder, config.trainer.steps);
  if (finished && config.run.resume == Resume::kNever) {
    return AlreadyHoldsRun(config.run, finished);
  }
  const bool is_first = config.trainer.rank == 0;
  if (finished) {
    LogInfo(absl::StrCat(
        folder,
        " holds a finished run; there is nothing left to do (another run.name "
        "starts a new run, more trainer.steps continue this one as far as its "
        "trainer.schedule_steps, and lora.start_from: ",
        JoinPath(folder, "adapter"),
        " trains its adapter further in a new run)"));
    if (is_first) {
      RETURN_IF_ERROR(TellIfUntold(config.run, [] { return false; }));
    }
    const bool copies = is_first && !config.checkpoint.copy_to.empty();
    if (!StaysWhenDone(config) && !copies) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Security> security,
                   Security::Load(config.security, {Role::kTrainer}));
  const auto credentials = std::make_shared<const RpcCredentials>(security);
  // Only rank 0 tells of the end, and only it needs the secret for that. No
  // wait gives up early: a second signal ends the process at once.
  RunConfig told = config.run;
  if (!is_first) told.notify_url.clear();
  ASSIGN_OR_RETURN(EndNotice notice,
                   EndNotice::Create(told, [] { return false; }));
  RunWindow window(config, security, credentials);
  const TrainerProcess process{.loaded = loaded,
                               .credentials = credentials,
                               .window = window,
                               .notice = notice,
                               .signal = signal};
  RETURN_IF_ERROR(window.ServeHttp());
  if (!finished) {
    if (is_first) {
      for (const std::string& warning : WarningsOfVainKeys(loaded)) {
        LogWarning(warning);
      }
    }
    const absl::Status result = Train(process);
    if (!result.ok()) notice.Tell(result);
    return result;
  }
  if (is_first) RETURN_IF_ERROR(window.ShowFinishedRun(folder));
  ASSIGN_OR_RETURN(const auto server, window.ServeRpc());
  server->SetStarted();  // a startup probe would not wait for the copy
  if (is_first) CopyFinishedRun(config, process.WaitForStop());
  if (StaysWhenDone(config)) ServeUntilSignal(process, *server);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  NameThisProcess();
  ReportCrashes();
  ServiceFlags flags;
  CommandLine line(
      "The DAPD trainer: drives the workers and trains the adapter.");
  flags.AddTo(line, "trainer.listen");
  if (const auto code = line.Parse(argc, argv)) return *code;
  const Config config = PeekConfig(flags.config, flags.Overrides());
  SetCudaEnvironment(config.model.deterministic);
  SetUpLog("trainer", config, config.trainer.rank);
  LogWhatGrpcSays();
  const absl::Status status = Run(flags);
  if (ExitCodeOf(status) == ExitCode::kInterrupted) {
    LogInfo(std::string(status.message()));
  } else if (!status.ok()) {
    LogError(std::string(status.message()));
  }
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) { return dapd::Main(argc, argv); }
