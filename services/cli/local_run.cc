#include "services/cli/local_run.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/stop_requests.h"
#include "common/base/this_program.h"
#include "common/base/thread_share.h"
#include "common/base/visible_gpus.h"
#include "common/config/preset_terms.h"
#include "common/config/rank_place.h"
#include "common/config/run_folder.h"
#include "common/config/teacher_yaml.h"
#include "common/config/validate_config.h"
#include "common/config/yaml_text.h"
#include "common/gpus/cuda_backend.h"
#include "common/gpus/gpu_report.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/gpu_memory_wait.h"
#include "common/model/spec/gpu_model.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/spec/machine_split.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/weights/adapter_check.h"
#include "common/model/weights/weight_files.h"
#include "common/rpc/pool/address_resolver.h"
#include "common/security/security.h"
#include "services/cli/machine_runs.h"
#include "services/cli/run_room.h"
#include "services/cli/start_checks.h"

namespace dapd {
namespace {

// Returns whether a request to stop this process comes within `time`.
bool WaitForStopRequest(absl::Duration time) {
  constexpr absl::Duration kInterval = absl::Milliseconds(100);
  const absl::Time end = SteadyNow() + time;
  while (StopRequests() == 0 && SteadyNow() < end) absl::SleepFor(kInterval);
  return StopRequests() > 0;
}

// Returns the --set value of `teachers`.
std::string TeachersOverride(const std::vector<TeacherModel>& teachers) {
  return absl::StrCat("teachers=", FormatList(teachers, FormatTeacher));
}

}  // namespace

LocalRun::LocalRun(std::string config_path,
                   std::vector<std::string> overrides,
                   LoadedConfig loaded,
                   RunSupervisor& supervisor)
    : config_path_(std::move(config_path)),
      overrides_(std::move(overrides)),
      loaded_(std::move(loaded)),
      config_(loaded_.config),
      folder_(FolderOf(config_.run)),
      supervisor_(supervisor) {}

absl::StatusOr<std::unique_ptr<ChildProcess>> LocalRun::MakeChild(
    const std::string& binary,
    const std::string& name,
    const std::vector<std::string>& overrides,
    bool to_log,
    const std::vector<std::string>& arguments) const {
  const std::filesystem::path self = ThisProgram();
  const std::string path = self.parent_path() / binary;
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(path, " does not exist; build it with deploy/build.sh"));
  }
  std::vector<std::string> command = {path, config_path_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  for (const auto* list : {&overrides_, &overrides}) {
    for (const std::string& override : *list) {
      command.push_back("--set");
      command.push_back(override);
    }
  }
  std::vector<std::string> environment;
  if (const auto place = places_.find(name);
      place != places_.end() && !place->second.gpus.empty()) {
    environment.push_back(GpuSetting(place->second.gpus));
    // A user who has set run.gpu_processes knows of other processes on these
    // GPUs.
    if (place->second.sharing > 1 && config_.run.gpu_processes == 1) {
      command.push_back("--set");
      command.push_back(
          absl::StrCat("run.gpu_processes=", place->second.sharing));
    }
  }
  auto child = std::make_unique<ChildProcess>(
      name,
      command,
      to_log ? JoinPath(folder_, absl::StrCat("logs/", name, ".log")) : "",
      std::move(environment));
  child->MarkWorkIn(JoinPath(folder_, absl::StrCat("logs/.", name, ".work")));
  if (!to_log && LogsJson()) {
    // Lines that a library prints are no JSON, which would break the reader of
    // our output. As text the child shares our terminal, for its progress bar.
    child->RelayLines(
        [source =
             LogSource{.service = name, .run = config_.run.name, .rank = 0}](
            absl::string_view line) { PassOnLog(line, source); });
  }
  return child;
}

absl::Status LocalRun::AddWorkers(const std::string& role,
                                  int64_t count,
                                  const std::string& metrics_listen,
                                  int64_t processes_each,
                                  std::vector<std::string>* addresses) {
  if (count == 0) return absl::OkStatus();
  // By default the processes of a role share the cores.
  int64_t threads = config_.run.num_threads;
  if (threads == 0) {
    threads = ThreadsOfEach(count * processes_each);
  }
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::string address,
                     AddWorker(role,
                               absl::StrCat(role, "-", i),
                               i,
                               metrics_listen,
                               threads,
                               /*arguments=*/{}));
    addresses->push_back(std::move(address));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalRun::AddWorker(
    const std::string& role,
    const std::string& name,
    int64_t index,
    const std::string& metrics_listen,
    int64_t threads,
    const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const std::string address, TakeAddress());
  std::string metrics = metrics_listen;
  if (!metrics.empty()) {
    // The first worker takes the configured port; each further port is 10
    // higher.
    ASSIGN_OR_RETURN(metrics,
                     TakeListen(metrics, 10 * static_cast<int>(index)));
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<ChildProcess> worker,
      MakeChild(
          absl::StrCat("dapd-", role),
          name,
          {TextOverride(absl::StrCat(role, ".listen"), address),
           TextOverride(absl::StrCat("metrics.", role, "_listen"), metrics),
           absl::StrCat("run.num_threads=", threads)},
          /*to_log=*/true,
          arguments));
  RETURN_IF_ERROR(supervisor_.AddWorker(std::move(worker)));
  LogInfo(absl::StrCat("started ", name, " on ", address));
  return address;
}

absl::Status LocalRun::AddFurtherTeachers(std::vector<std::string>* overrides) {
  if (TeachersAsked(config_).empty()) return absl::OkStatus();
  const int64_t threads = config_.run.num_threads > 0
                              ? config_.run.num_threads
                              : ThreadsOfEach(NumFurtherWorkers(config_));
  std::vector<TeacherModel> all = config_.teachers;
  for (const TeacherModel& asked : TeachersAsked(config_)) {
    std::vector<std::string> addresses;
    for (int64_t i = 0; i < asked.workers; ++i) {
      ASSIGN_OR_RETURN(std::string address,
                       AddWorker("teacher",
                                 FurtherWorkerName(asked.name, i),
                                 i,
                                 asked.metrics_listen,
                                 threads,
                                 {"--teacher", asked.name}));
      addresses.push_back(std::move(address));
    }
    std::ranges::find(all, asked.name, &TeacherModel::name)->addresses =
        std::move(addresses);
  }
  overrides->push_back(TeachersOverride(all));
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalRun::TakeAddress() {
  ASSIGN_OR_RETURN(const int port, ports_.Take(0));
  return absl::StrCat("127.0.0.1:", port);
}

absl::StatusOr<std::string> LocalRun::TakeListen(const std::string& configured,
                                                 int offset) {
  std::string host;
  int port = 0;
  if (!SplitAddress(configured, &host, &port)) {
    return ConfigError(absl::StrCat("'", configured, "' is not host:port"));
  }
  ASSIGN_OR_RETURN(const int taken, ports_.Take(port == 0 ? 0 : port + offset));
  return JoinHostPort(host, taken);
}

absl::Status LocalRun::CheckFolder() const {
  const bool resumed = FileExists(JoinPath(folder_, "config.yaml"));
  const bool finished = HasFinished(folder_, config_.trainer.steps);
  if (resumed && (finished || config_.run.resume == Resume::kNever)) {
    return AlreadyHoldsRun(config_.run, finished);
  }
  return MakeDirectories(JoinPath(folder_, "logs"));
}

void LocalRun::Deal(const std::vector<LocalProcess>& processes) {
  for (const LocalProcess& process : processes) {
    places_[process.name] = {.gpus = process.gpus,
                             .sharing = ProcessesOnGpusOf(process, processes)};
  }
}

absl::Status LocalRun::TakeGpus() {
  if (config_.model.device == DeviceChoice::kCpu) return absl::OkStatus();
  const GpuReport report = FindGpus();
  absl::Status usable = report.usable;
  if (usable.ok()) usable = CudaBackendPath().status();
  if (!usable.ok()) {
    const std::string reason(usable.message());
    if (const int64_t asked = NumGpusAsked(config_.run); asked > 0) {
      return ConfigError(absl::StrCat(
          "run.gpus is ", asked, ", but no GPU can be used: ", reason));
    }
    if (config_.model.device == DeviceChoice::kCuda ||
        absl::IsInvalidArgument(usable)) {
      return ConfigError(reason);
    }
    // The processes compute on the CPU.
    Deal(DealGpus(config_, GpuNames(report)));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string folder,
                   FindModelFolder(config_.model.path));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(folder));
  RETURN_IF_ERROR(CheckGpuModel(config_.model.precision, model));
  ASSIGN_OR_RETURN(const FurtherTeachers teachers,
                   FindFurtherTeachers(config_));
  ASSIGN_OR_RETURN(
      const MachineSplit split,
      SplitMachine(loaded_, BegunConfig(config_.run), model, report, teachers));
  config_ = split.config;
  overrides_.insert(
      overrides_.end(), split.overrides.begin(), split.overrides.end());
  if (!split.text.empty()) LogInfo(split.text);
  for (const std::string& warning : split.warnings) LogWarning(warning);
  if (split.names.size() > 1 && !config_.evaluation.path.empty()) {
    LogInfo(
        "while the run evaluates, its rollout workers answer alone: the other "
        "GPUs have no memory for a base to decode with beside what they hold "
        "(docs/evaluation.md, \"Within a run\")");
  }
  const std::vector<LocalProcess> processes = DealGpus(config_, split.names);
  Deal(processes);
  const MemoryPlan plan = PlanMemory(config_, model, teachers);
  return AwaitGpuMemory(
      [&] {
        return CheckShares(processes, plan, split.names, FindGpus().gpus);
      },
      absl::Seconds(config_.run.gpu_wait_seconds),
      WaitForStopRequest);
}

// Otherwise the trainer would wait for workers that refuse it.
absl::Status LocalRun::CheckTokens() const {
  ASSIGN_OR_RETURN(const auto security,
                   Security::Load(config_.security, /*needed=*/{}));
  return security->AdmitsItself();
}

absl::Status LocalRun::CheckFiles() const {
  RETURN_IF_ERROR(CheckMachine(config_));
  ASSIGN_OR_RETURN(const std::string folder,
                   FindModelFolder(config_.model.path));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(folder));
  RETURN_IF_ERROR(OpenWeightFiles(model).status());
  RETURN_IF_ERROR(CheckFurtherTeachers(config_));
  // A resumed run has its adapter in its folder.
  const bool resumed = FileExists(JoinPath(folder_, "config.yaml"));
  if (!resumed) RETURN_IF_ERROR(FindStartAdapter(config_.lora, model).status());
  const std::string want = WantOfRoom(folder_, RoomOfRun(config_, model));
  if (!want.empty()) LogWarning(absl::StrCat("run.output_dir: ", want));
  return absl::OkStatus();
}

absl::Status LocalRun::Start() {
  RETURN_IF_ERROR(CheckTokens());
  RETURN_IF_ERROR(CheckFiles());
  RETURN_IF_ERROR(TakeGpus());
  RETURN_IF_ERROR(CheckFolder());
  std::vector<std::string> rollouts;
  std::vector<std::string> teachers;
  // Workers that the objective does not need are not started.
  RETURN_IF_ERROR(
      AddWorkers("rollout",
                 AsksRolloutWorkers(config_) ? config_.run.rollout_workers : 0,
                 config_.metrics.rollout_listen,
                 config_.rollout.tensor_parallel,
                 &rollouts));
  RETURN_IF_ERROR(
      AddWorkers("teacher",
                 AsksTeachers(config_) ? config_.run.teacher_workers : 0,
                 config_.metrics.teacher_listen,
                 /*processes_each=*/1,
                 &teachers));
  std::vector<std::string> overrides;
  for (const auto& [key, addresses] :
       {std::pair{"rollout.addresses", &rollouts},
        std::pair{"teacher.addresses", &teachers}}) {
    if (addresses->empty()) continue;
    overrides.push_back(
        absl::StrCat(key, "=[", absl::StrJoin(*addresses, ","), "]"));
  }
  RETURN_IF_ERROR(AddFurtherTeachers(&overrides));
  return AddTrainers(overrides);
}

absl::Status LocalRun::AddTrainers(const std::vector<std::string>& overrides) {
  std::string status_address;
  ASSIGN_OR_RETURN(const std::string rendezvous, TakeAddress());
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
                               /*to_log=*/rank != 0));
    supervisor_.AddTrainer(std::move(trainer));
  }
  LogInfo(absl::StrCat("starting the trainer; watch it with: dapd status ",
                       status_address,
                       "; logs of the other processes: ",
                       folder_,
                       "/logs"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> LocalRun::RankOverrides(
    int64_t rank, const std::string& rendezvous, std::string* status_address) {
  const bool first = rank == 0;
  ASSIGN_OR_RETURN(
      const std::string listen,
      first ? TakeListen(config_.trainer.listen, 0) : TakeAddress());
  if (first) *status_address = ReachableHere(listen);
  std::vector<std::string> overrides =
      SettingsOfRank(config_.trainer.ranks, rank);
  overrides.push_back(TextOverride("trainer.listen", listen));
  overrides.push_back(TextOverride("trainer.rendezvous", rendezvous));
  if (config_.trainer.ranks > 1 && config_.run.num_threads == 0) {
    // All ranks must compute with equally many threads, and they share the
    // cores.
    overrides.push_back(
        absl::StrCat("run.num_threads=", ThreadsOfEach(config_.trainer.ranks)));
  }
  if (!config_.metrics.trainer_listen.empty()) {
    ASSIGN_OR_RETURN(const std::string metrics,
                     TakeListen(config_.metrics.trainer_listen,
                                10 * static_cast<int>(rank)));
    overrides.push_back(TextOverride("metrics.trainer_listen", metrics));
    if (first) {
      LogInfo(absl::StrCat("metrics of the trainer: http://",
                           ReachableHere(metrics),
                           "/metrics"));
      LogInfo(
          absl::StrCat("status page: http://", ReachableHere(metrics), "/"));
    }
  }
  return overrides;
}

}  // namespace dapd
