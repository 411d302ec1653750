// dapd-trainer CONFIG [--set key=value]... [--listen ADDR]
//
// The trainer: drives the rollout and teacher workers, computes the losses,
// updates the adapter. Ends after trainer.steps with exit code 0, or with
// trainer.when_done: serve, stays until a signal. With
// trainer.ranks_per_machine it is that many processes.

#include <algorithm>
#include <functional>
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
#include "services/trainer/workers/rollout_client.h"
#include "services/trainer/workers/teacher_client.h"

namespace dapd {
namespace {

// Before the rendezvous is tried again.
constexpr absl::Duration kRendezvousPause = absl::Seconds(5);

template <typename Options>
Options MakeClientOptions(const Config& config,
                          const std::vector<std::string>& addresses,
                          std::shared_ptr<const RpcCredentials> credentials,
                          const ExpectedWorker& expected,
                          Timeline* timeline,
                          WorkerPoolObserver observer) {
  Options options;
  options.addresses = addresses;
  options.credentials = std::move(credentials);
  options.expected = expected;
  options.task_timeout = AnswerTimeout(
      absl::Seconds(config.trainer.rpc_timeout_seconds),
      std::max(config.rollout.max_new_tokens, HeldOutAnswerTokens(config)));
  options.peer_timeout = absl::Seconds(config.trainer.peer_timeout_seconds);
  options.timeline = timeline;
  options.observer = std::move(observer);
  return options;
}

absl::StatusOr<std::unique_ptr<Collective>> JoinRanks(
    const TrainerSection& trainer,
    std::shared_ptr<const RpcCredentials> credentials,
    const std::string& identity,
    const ShutdownSignal& signal) {
  if (trainer.ranks == 1) return MakeSingleRank();
  const RankOptions options{
      .rank = static_cast<int>(trainer.rank),
      .world_size = static_cast<int>(trainer.ranks),
      .rendezvous = trainer.rendezvous,
      .credentials = std::move(credentials),
      .identity = identity,
      .join_timeout = absl::Seconds(trainer.peer_timeout_seconds),
      .gives_up = [&signal] { return signal.requested(); },
      .operation_timeout = absl::Seconds(trainer.rank_timeout_seconds)};
  return options.rank == 0 ? StartRankLeader(options) : JoinRankLeader(options);
}

// Null: none is wanted, or this rank runs where the run folder is not.
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

bool StaysWhenDone(const Config& config) {
  return config.trainer.when_done == WhenDone::kServe;
}

// Who tells ranks that are started again that the run is over; null once there
// is a signal. The name of the rendezvous may for a while be that of the
// machine where this rank was before.
std::unique_ptr<EndedJob> ServeEndedJob(
    const std::string& rendezvous,
    const std::shared_ptr<const RpcCredentials>& credentials,
    ShutdownSignal& signal) {
  absl::Status failure;
  while (!signal.requested()) {
    auto served = EndedJob::Serve(rendezvous, credentials);
    if (served.ok()) return *std::move(served);
    if (std::exchange(failure, served.status()).ok()) {
      LogWarning(
          absl::StrCat("ranks that are started again are not told yet that the "
                       "run is over: ",
                       std::string(failure.message())));
    }
    signal.WaitFor(kRendezvousPause);
  }
  return nullptr;
}

void ServeUntilSignal(const TrainerSection& trainer,
                      const std::shared_ptr<const RpcCredentials>& credentials,
                      RpcServer& server,
                      ShutdownSignal& signal) {
  server.SetServing(true);
  LogInfo(absl::StrCat("the run is done; serving its status on ",
                       server.address(),
                       " until a signal"));
  std::unique_ptr<EndedJob> ended;
  if (trainer.rank == 0 && trainer.ranks > 1) {
    ended = ServeEndedJob(trainer.rendezvous, credentials, signal);
  }
  signal.Wait();
}

// Joins the other ranks, and trains with them.
absl::Status TrainWithRanks(
    TrainerRun& run,
    const TrainerSection& trainer,
    const std::shared_ptr<const RpcCredentials>& credentials,
    RolloutClient& rollouts,
    TeacherClient& teachers,
    RpcServer& server,
    Timeline* timeline,
    ShutdownSignal& signal) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Collective> collective,
                   JoinRanks(trainer, credentials, run.Identity(), signal));
  server.SetServing(true);
  LogInfo(absl::StrCat("training; status on ", server.address()));

  // A signal ends the clients' waits, and with them the loop.
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!signal.WaitFor(absl::Milliseconds(200))) continue;
      rollouts.Shutdown();
      teachers.Shutdown();
      collective->Cancel();
      return;
    }
  });
  return run.Train(
      rollouts,
      teachers,
      *collective,
      timeline,
      [&signal](absl::Duration timeout) { return signal.WaitFor(timeout); });
}

// The loaded run to its end, with workers and other ranks. `on_done` is called
// once it is finished, before the process stays for its status.
absl::Status TrainLoaded(
    TrainerRun& run,
    const Config& config,
    const std::shared_ptr<const RpcCredentials>& credentials,
    RunWindow& window,
    ShutdownSignal& signal,
    const std::function<void()>& on_done) {
  // Outlives the clients, which write into it.
  const std::unique_ptr<Timeline> timeline = MakeTimeline(config);
  // Workers that nothing is asked of need not be there, nor be missed by an
  // alert.
  const std::vector<std::string> nobody;
  const bool asks_rollouts = AsksRolloutWorkers(config);
  const bool asks_teachers = AsksTeachers(config);
  for (const auto& [role, asks] : {std::pair{"rollout workers", asks_rollouts},
                                   {"teachers", asks_teachers}}) {
    if (!asks) LogInfo(absl::StrCat("the objective needs no ", role));
  }
  const auto observe = [&](const char* role, bool asks) {
    return asks ? window.metrics().PoolObserver(role) : WorkerPoolObserver();
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<RolloutClient> rollouts,
                   RolloutClient::Start(MakeClientOptions<RolloutClientOptions>(
                       config,
                       asks_rollouts ? config.rollout.addresses : nobody,
                       credentials,
                       run.ExpectedWorkers(),
                       timeline.get(),
                       observe("rollout", asks_rollouts))));
  auto teacher_options = MakeClientOptions<TeacherClientOptions>(
      config,
      asks_teachers ? config.teacher.addresses : nobody,
      credentials,
      run.ExpectedWorkers(),
      timeline.get(),
      observe("teacher", asks_teachers));
  teacher_options.connections = config.teacher.connections;
  ASSIGN_OR_RETURN(const std::unique_ptr<TeacherClient> teachers,
                   TeacherClient::Start(std::move(teacher_options)));
  window.status().SetWorkers([&rollouts] { return rollouts->Workers(); },
                             [&teachers] { return teachers->Workers(); });
  const absl::Cleanup forget_workers = [&window] {
    window.status().SetWorkers({}, {});
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, window.ServeRpc());
  // The other ranks may be long in coming, which no restart of this one mends.
  server->SetStarted();
  const absl::Status result = TrainWithRanks(run,
                                             config.trainer,
                                             credentials,
                                             *rollouts,
                                             *teachers,
                                             *server,
                                             timeline.get(),
                                             signal);
  if (result.ok()) {
    on_done();
    if (StaysWhenDone(config)) {
      ServeUntilSignal(config.trainer, credentials, *server, signal);
    }
  }
  server->SetServing(false);
  server->Shutdown(absl::Seconds(1));
  return result;
}

// Why a run could not be loaded, for whoever has made its folder and would
// otherwise know no more than the exit code (`dapd run`).
void KeepEarlyFailure(const Config& config,
                      const absl::Status& status,
                      absl::Time start) {
  const std::string folder = FolderOf(config.run);
  if (config.trainer.rank != 0 || !FileExists(folder)) return;
  CorrectOutcome(folder, status, start);
}

// The run from its loading to its end.
absl::Status Train(const LoadedConfig& loaded,
                   const std::shared_ptr<const RpcCredentials>& credentials,
                   RunWindow& window,
                   ShutdownSignal& signal,
                   EndNotice& notice) {
  const absl::Time start = absl::Now();
  auto loading = TrainerRun::Load(
      loaded, window.displays(), [&signal](absl::Duration timeout) {
        return signal.WaitFor(timeout);
      });
  if (!loading.ok()) {
    KeepEarlyFailure(loaded.config, loading.status(), start);
    return loading.status();
  }
  const std::unique_ptr<TrainerRun> run = *std::move(loading);
  const auto on_done = [&] {
    // In this order: who is killed in between tells again (TellIfUntold).
    notice.Tell(absl::OkStatus());
    run->RecordOutcome(absl::OkStatus());
  };
  const absl::Status result =
      TrainLoaded(*run, loaded.config, credentials, window, signal, on_done);
  if (!result.ok()) run->RecordOutcome(result);
  return result;
}

absl::Status Run(const ServiceFlags& flags) {
  ShutdownSignal signal;
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(flags.config, flags.Overrides()));
  const Config& config = loaded.config;
  if (config.trainer.ranks_per_machine > 1) {
    return RunLocalRanks(flags.config, flags.Overrides(), config, signal);
  }
  const std::string folder = FolderOf(config.run);
  // The other ranks know it where they see the folder: rank 0 is not there then
  // to tell them.
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
  // Other ranks have nothing to tell and need not have the secret. A second
  // signal ends the process at once, and with it any wait.
  RunConfig told = config.run;
  if (!is_first) told.notify_url.clear();
  ASSIGN_OR_RETURN(EndNotice notice,
                   EndNotice::Create(told, [] { return false; }));
  RunWindow window(config, security, credentials);
  RETURN_IF_ERROR(window.ServeHttp());
  if (!finished) {
    if (is_first) {
      for (const std::string& warning : WarningsOfVainKeys(loaded)) {
        LogWarning(warning);
      }
    }
    const absl::Status result =
        Train(loaded, credentials, window, signal, notice);
    if (!result.ok()) notice.Tell(result);
    return result;
  }
  if (is_first) RETURN_IF_ERROR(window.ShowFinishedRun(folder));
  ASSIGN_OR_RETURN(const auto server, window.ServeRpc());
  server->SetStarted();  // whoever waits for that would not wait for a copy
  if (is_first) {
    CopyFinishedRun(config, [&signal](absl::Duration timeout) {
      return signal.WaitFor(timeout);
    });
  }
  if (StaysWhenDone(config)) {
    ServeUntilSignal(config.trainer, credentials, *server, signal);
  }
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
