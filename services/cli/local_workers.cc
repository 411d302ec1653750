#include "services/cli/local_workers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/this_program.h"
#include "common/base/thread_share.h"
#include "common/base/visible_gpus.h"
#include "common/config/yaml_text.h"
#include "services/cli/crash_text.h"

namespace dapd {
namespace {

constexpr size_t kTailLines = 20;
constexpr absl::string_view kEmptyConfig = "{}\n";

}  // namespace

// The last lines of a worker, written by the thread of its relay.
class LocalWorkers::Tail {
 public:
  void Add(absl::string_view line) {
    MutexLock lock(&mutex_);
    lines_.emplace_back(line);
    if (lines_.size() > kTailLines) lines_.pop_front();
  }
  std::string Text() const {
    MutexLock lock(&mutex_);
    return PrintableLines(absl::StrJoin(lines_, "\n  "));
  }

 private:
  mutable Mutex mutex_;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

LocalWorkers::LocalWorkers(std::vector<std::vector<std::string>> gpus)
    : gpus_(std::move(gpus)) {}

LocalWorkers::~LocalWorkers() {
  // All workers get the signal before any is waited for.
  for (const Worker& worker : workers_) worker.process->Signal(SIGTERM);
  workers_.clear();
  for (const int file : files_) ::close(file);
}

absl::StatusOr<std::unique_ptr<LocalWorkers>> LocalWorkers::Make(
    std::vector<std::vector<std::string>> gpus) {
  std::unique_ptr<LocalWorkers> workers(new LocalWorkers(std::move(gpus)));
  while (workers->addresses_.size() < workers->gpus_.size()) {
    ASSIGN_OR_RETURN(const int port, workers->ports_.Take(0));
    workers->addresses_.push_back(absl::StrCat("127.0.0.1:", port));
  }
  return workers;
}

absl::StatusOr<std::string> LocalWorkers::MakeFile(absl::string_view content) {
  const int file = ::memfd_create("dapd-rollout", MFD_CLOEXEC);
  if (file < 0) return FileError("create", "a file in memory", errno);
  files_.push_back(file);
  if (::write(file, content.data(), content.size()) !=
      static_cast<ssize_t>(content.size())) {
    return FileError("write", "a file in memory", errno);
  }
  return absl::StrCat("/proc/", ::getpid(), "/fd/", file);
}

std::vector<std::string> LocalWorkers::Settings(
    const LocalWorkersOptions& options, size_t index) const {
  const size_t of_each = gpus_[index].size();
  return {TextOverride("model.path", options.model_path),
          absl::StrCat("model.precision=", NameOf(options.precision)),
          "model.device=cuda",
          absl::StrCat("lora.rank=", options.lora_rank),
          absl::StrCat("rollout.slots=", options.slots),
          absl::StrCat("rollout.kv_memory_mib=", options.kv_memory_mib),
          absl::StrCat("rollout.kv_precision=", NameOf(options.kv_precision)),
          absl::StrCat("rollout.max_new_tokens=", options.max_new_tokens),
          absl::StrCat("rollout.tensor_parallel=", of_each),
          TextOverride("rollout.listen", addresses_[index]),
          "metrics.rollout_listen=\"\"",
          absl::StrCat(
              "run.num_threads=",
              ThreadsOfEach(static_cast<int64_t>(gpus_.size() * of_each)))};
}

absl::Status LocalWorkers::Start(const LocalWorkersOptions& options) {
  const std::filesystem::path folder =
      std::filesystem::path(ThisProgram()).parent_path();
  const std::string program = folder / "dapd-rollout";
  if (::access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(
        program, " does not exist; build it with deploy/build.sh"));
  }
  // Every service reads a configuration file.
  ASSIGN_OR_RETURN(const std::string config, MakeFile(kEmptyConfig));
  for (size_t i = 0; i < gpus_.size(); ++i) {
    RETURN_IF_ERROR(StartWorker(program, config, options, i));
  }
  return absl::OkStatus();
}

absl::Status LocalWorkers::StartWorker(const std::string& program,
                                       const std::string& config,
                                       const LocalWorkersOptions& options,
                                       size_t index) {
  const std::vector<std::string>& gpus = gpus_[index];
  std::vector<std::string> command = {program, config};
  for (std::string& setting : Settings(options, index)) {
    command.emplace_back("--set");
    command.push_back(std::move(setting));
  }
  ASSIGN_OR_RETURN(std::string mark, MakeFile(""));
  Worker worker{
      .process = std::make_unique<ChildProcess>(
          absl::StrCat("the worker on GPU ", absl::StrJoin(gpus, " and ")),
          std::move(command),
          /*log_path=*/"",
          std::vector<std::string>{GpuSetting(gpus)}),
      .tail = std::make_shared<Tail>()};
  worker.process->MarkWorkIn(std::move(mark));
  worker.process->RelayLines(
      [tail = worker.tail](absl::string_view line) { tail->Add(line); });
  workers_.push_back(std::move(worker));
  workers_.back().restarts.Started(SteadyNow());
  return workers_.back().process->Start();
}

absl::Status LocalWorkers::KeepAlive() {
  for (Worker& worker : workers_) RETURN_IF_ERROR(KeepAlive(worker));
  return absl::OkStatus();
}

absl::Status LocalWorkers::KeepAlive(Worker& worker) {
  ChildProcess& process = *worker.process;
  const absl::Time now = SteadyNow();
  if (const int code = process.Poll(); code >= 0) {
    const std::string what =
        absl::StrCat(process.name(), " ", HowItDied(process, code));
    const bool has_explained = WouldEndAgain(code);
    if (!has_explained) {
      worker.next_start = worker.restarts.Ended(code, process.HasWorked(), now);
    }
    if (!worker.next_start.has_value()) {
      return WithExitCode(
          absl::InternalError(absl::StrCat(what,
                                           " and would do so again; its last "
                                           "lines:\n  ",
                                           worker.tail->Text())),
          has_explained ? static_cast<ExitCode>(code) : ExitCode::kInternal);
    }
    LogWarning(absl::StrCat(what, "; restarting it"));
  }
  if (!worker.next_start.has_value() || now < *worker.next_start) {
    return absl::OkStatus();
  }
  worker.next_start.reset();
  worker.restarts.Started(now);
  return process.Start();
}

}  // namespace dapd
