#include "common/config/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

// The summary contains every evaluation of the run, 1.7 KB each.
constexpr uint64_t kMaxSummaryBytes = uint64_t{1} << 32;

// The usual reason is a mount that belongs to somebody else.
absl::Status ExplainOutputError(const absl::Status& error) {
  if (!absl::IsPermissionDenied(error)) return error;
  return ConfigError(absl::StrCat(
      error.message(),
      "; run.output_dir must be a folder that this user can write to"));
}

}  // namespace

std::string FolderOf(const RunConfig& run) {
  return JoinPath(run.output_dir, run.name);
}

absl::Status AlreadyHoldsRun(const RunConfig& run, bool finished) {
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          FolderOf(run),
          " already holds a ",
          finished ? "finished run" : "run",
          run.resume == Resume::kNever ? " and run.resume is never" : "",
          "; choose another run.name (--set run.name=...)",
          finished ? absl::StrCat(", with lora.start_from: ",
                                  JoinPath(FolderOf(run), "adapter"),
                                  " to train its adapter further; more "
                                  "trainer.steps continue it as far as its "
                                  "trainer.schedule_steps")
                   : " or remove that folder")),
      ExitCode::kConfig);
}

absl::StatusOr<RunFolder> RunFolder::Open(const RunConfig& run) {
  const std::string path = FolderOf(run);
  if (const absl::Status made = MakeDirectories(path); !made.ok()) {
    return ExplainOutputError(made);
  }
  const std::string lock_path = JoinPath(path, kRunLock);
  const int lock =
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) {
    return ExplainOutputError(FileError("create", lock_path, errno));
  }
  absl::Cleanup unlock = [lock] { ::close(lock); };
  ASSIGN_OR_RETURN(const bool is_ours, TryLock(lock, lock_path));
  if (!is_ours) {
    return absl::UnavailableError(absl::StrCat(
        path,
        " is in use by another trainer; stop it, or choose another "
        "run.name"));
  }
  std::move(unlock).Cancel();
  const bool resumed = FileExists(JoinPath(path, "config.yaml"));
  RunFolder folder(path, lock, resumed);
  if (resumed && run.resume == Resume::kNever) {
    return AlreadyHoldsRun(run, /*finished=*/false);
  }
  for (const char* name : {"",
                           "adapter",
                           "adapter-best",
                           "checkpoints",
                           "evaluation",
                           "samples"}) {
    RemoveTemporaries(folder.File(name));
  }
  for (const char* name : {"samples", "checkpoints", "evaluation"}) {
    RETURN_IF_ERROR(MakeDirectories(folder.File(name)));
  }
  return folder;
}

RunFolder::RunFolder(std::string path, int lock, bool resumed)
    : path_(std::move(path)), lock_(lock), resumed_(resumed) {}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      resumed_(other.resumed_) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string RunFolder::File(const std::string& name) const {
  return JoinPath(path_, name);
}

absl::StatusOr<bool> IsHeld(const std::string& run_folder) {
  return IsLocked(JoinPath(run_folder, kRunLock));
}

int64_t FinishedStep(const std::string& run_folder) {
  const std::string path = JoinPath(run_folder, "summary.json");
  const auto text = ReadFile(path, kMaxSummaryBytes);
  if (!text.ok()) return 0;
  const auto summary = ParseJson(*text, path);
  if (!summary.ok() || !summary->is_object()) return 0;
  const auto steps = summary->find("steps");
  return steps != summary->end() && steps->is_number_integer()
             ? steps->get<int64_t>()
             : 0;
}

bool HasFinished(const std::string& run_folder, int64_t steps) {
  return FinishedStep(run_folder) >= steps;
}

}  // namespace dapd
