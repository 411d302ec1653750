#include "services/cli/local_workers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/this_program.h"
#include "common/base/thread_share.h"
#include "common/base/visible_gpus.h"
#include "common/config/yaml_text.h"

namespace dapd {
namespace {

// A worker that ends so often is not worth another start.
constexpr int kMaxRestarts = 3;
constexpr size_t kTailLines = 20;
constexpr absl::string_view kEmptyConfig = "{}\n";

bool WouldEndAgain(int code) {
  return code == static_cast<int>(ExitCode::kConfig) ||
         code == static_cast<int>(ExitCode::kData) ||
         code == static_cast<int>(ExitCode::kUsage);
}

}  // namespace

// The last lines of a worker, which a thread of its relay adds to.
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
  // All at once, before each is waited for.
  for (const Worker& worker : workers_) worker.process->Signal(SIGTERM);
  workers_.clear();
  if (config_ >= 0) ::close(config_);
}

absl::StatusOr<std::unique_ptr<LocalWorkers>> LocalWorkers::Make(
    std::vector<std::vector<std::string>> gpus) {
  std::unique_ptr<LocalWorkers> workers(new LocalWorkers(std::move(gpus)));
  while (workers->addresses_.size() < workers->gpus_.size()) {
    ASSIGN_OR_RETURN(const int port, workers->ports_.Take(0));
    workers->addresses_.push_back(absl::StrCat("127.0.0.1:", port));
  }
  // A service reads a file first. This one is never left behind.
  workers->config_ = ::memfd_create("dapd-rollout.yaml", MFD_CLOEXEC);
  if (workers->config_ < 0 ||
      ::write(workers->config_, kEmptyConfig.data(), kEmptyConfig.size()) !=
          static_cast<ssize_t>(kEmptyConfig.size())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no file in memory for the configuration of rollout "
                     "workers: ",
                     std::strerror(errno)));
  }
  return workers;
}

std::vector<std::string> LocalWorkers::Settings(
    const LocalWorkersOptions& options, size_t index) const {
  const size_t of_each = gpus_[index].size();
  return {TextOverride("model.path", options.model_path),
          absl::StrCat("model.precision=", options.precision),
          "model.device=cuda",
          absl::StrCat("lora.rank=", options.lora_rank),
          absl::StrCat("rollout.slots=", options.slots),
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
  for (size_t i = 0; i < gpus_.size(); ++i) {
    std::vector<std::string> command = {
        program, absl::StrCat("/proc/", ::getpid(), "/fd/", config_)};
    for (std::string& setting : Settings(options, i)) {
      command.emplace_back("--set");
      command.push_back(std::move(setting));
    }
    Worker worker{.process = std::make_unique<ChildProcess>(
                      absl::StrCat("the worker on GPU ",
                                   absl::StrJoin(gpus_[i], " and ")),
                      std::move(command),
                      /*log_path=*/"",
                      std::vector<std::string>{GpuSetting(gpus_[i])}),
                  .tail = std::make_shared<Tail>()};
    worker.process->RelayLines(
        [tail = worker.tail](absl::string_view line) { tail->Add(line); });
    workers_.push_back(std::move(worker));
    RETURN_IF_ERROR(workers_.back().process->Start());
  }
  return absl::OkStatus();
}

absl::Status LocalWorkers::KeepAlive() {
  for (Worker& worker : workers_) {
    const int code = worker.process->Poll();
    if (code < 0) continue;
    const std::string what =
        absl::StrCat(worker.process->name(), " ended with code ", code);
    const bool has_explained = WouldEndAgain(code);
    if (has_explained || worker.restarts == kMaxRestarts) {
      return WithExitCode(
          absl::InternalError(absl::StrCat(what,
                                           " and would do so again; its last "
                                           "lines:\n  ",
                                           worker.tail->Text())),
          has_explained ? static_cast<ExitCode>(code) : ExitCode::kInternal);
    }
    ++worker.restarts;
    LogWarning(absl::StrCat(what, "; restarting it"));
    RETURN_IF_ERROR(worker.process->Start());
  }
  return absl::OkStatus();
}

}  // namespace dapd
