// dapd restore: restores a run folder from its copy.

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/config/copy_place.h"
#include "common/copy/object_store.h"
#include "services/cli/command.h"
#include "services/cli/restore_run.h"

namespace dapd {
namespace {

struct RestoreOptions {
  std::string url;
  std::string folder;
  std::string python;
  int64_t step = -1;  // the newest
  double timeout_seconds = 120;
};

absl::Status Restore(const RestoreOptions& options) {
  std::string folder = options.folder;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  std::string url = options.url;
  while (url.size() > 1 && url.back() == '/') url.pop_back();
  // Otherwise the URL would be taken for a folder of this machine, which holds
  // no copy.
  if (const std::string problem = StoreProblem(url); !problem.empty()) {
    return WithExitCode(absl::InvalidArgumentError(problem), ExitCode::kUsage);
  }
  ObjectStore store(
      {.url = url,
       .command = ObjectStoreCommand(options.python, url),
       .progress_timeout = absl::Seconds(options.timeout_seconds)});
  ASSIGN_OR_RETURN(const RestoredRun run,
                   RestoreRun(store, folder, options.step));
  std::fputs(absl::StrFormat(
                 "%s holds the run as it was after step %d (%d files, "
                 "%.1f MiB); the command that started it resumes from there\n",
                 folder,
                 run.step,
                 run.files,
                 static_cast<double>(run.bytes) / (1 << 20))
                 .c_str(),
             stdout);
  return absl::OkStatus();
}

}  // namespace

void AddRestoreCommand(Command& app) {
  auto options = std::make_shared<RestoreOptions>();
  Command command = app.AddSubcommand(
      "restore", "Restores a run folder from its copy (checkpoint.copy_to)");
  command
      .AddOption("url",
                 options->url,
                 "the copy: checkpoint.copy_to followed by /<run.name>")
      .Path()
      .Required();
  command
      .AddOption(
          "run", options->folder, "run folder to create: runs/<run.name>")
      .Path()
      .Required();
  command
      .AddOption(
          "--step",
          options->step,
          "the checkpoint of this step instead of the newest whole checkpoint")
      .NonNegative();
  command
      .AddOption("--python",
                 options->python,
                 "Python with deploy/requirements-copy.txt")
      .Path()
      .NotEmpty();
  command
      .AddOption("--timeout",
                 options->timeout_seconds,
                 "seconds without progress after which it gives up")
      .Positive()
      .ShowDefault();
  command.Does([options] { return Restore(*options); });
}

}  // namespace dapd
