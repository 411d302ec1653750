// dapd run: runs all three services on this machine to the end of the run.

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stop_requests.h"
#include "common/config/load_config.h"
#include "common/config/run_folder.h"
#include "common/config/set_up_log.h"
#include "common/config/shipped_configs.h"
#include "common/config/validate_config.h"
#include "common/data/dataset.h"
#include "services/cli/command.h"
#include "services/cli/local_run.h"
#include "services/cli/run_supervisor.h"
#include "services/trainer/copy/run_copier.h"
#include "services/trainer/record/attempt_end.h"

namespace dapd {
namespace {

struct RunOptions {
  std::string config;
  std::vector<std::string> overrides;
  int64_t ranks = 0;  // 0: as configured
};

// Completes the copy and the notice of a finished run.
void CopyAgain(const Config& config, const std::string& folder) {
  LogInfo(absl::StrCat(folder,
                       " holds a finished run; the parts that its copy at ",
                       config.checkpoint.copy_to,
                       " lacks are copied"));
  CopyFinishedRun(config, [](absl::Duration time) {
    absl::SleepFor(time);
    return StopRequests() > 0;
  });
}

absl::Status Run(RunOptions options) {
  if (options.ranks > 0) {
    options.overrides.push_back(absl::StrCat("trainer.ranks=", options.ranks));
  }
  SetUpLog("run", PeekConfig(options.config, options.overrides));
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  const Config& config = loaded.config;
  RETURN_IF_ERROR(CheckTrains(config));
  CatchStopRequests();
  ASSIGN_OR_RETURN(AttemptEnd end, AttemptEnd::Create(config, [] {
                     return StopRequests() > 1;
                   }));
  const std::string folder = FolderOf(config.run);
  if (HasFinished(folder, config.trainer.steps) &&
      config.run.resume != Resume::kNever &&
      !config.checkpoint.copy_to.empty()) {
    CopyAgain(config, folder);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(RequireDataPath(config.data));
  // The services would set this themselves, which costs each a second start
  // (common/base/passive_threads.cc). A user's own setting stays.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  for (std::string& override : AttemptEnd::TrainerOverrides()) {
    options.overrides.push_back(std::move(override));
  }
  // This process stops its workers itself.
  options.overrides.push_back("run.stopped_worker=done");
  // LocalRun itself checks for "never": a restarted trainer finds the folder of
  // its predecessor.
  options.overrides.push_back("run.resume=auto");
  absl::Status outcome;
  {
    RunSupervisor supervisor(
        {}, [&end](int code) { return end.TrainersWord(code); });
    LocalRun run(options.config, options.overrides, loaded, supervisor);
    outcome = run.Start();
    if (outcome.ok()) outcome = supervisor.Follow([&] { end.TellIfDone(); });
  }
  end.Tell(outcome);
  return outcome;
}

}  // namespace

void AddRunCommand(Command& app) {
  auto options = std::make_shared<RunOptions>();
  Command command = app.AddSubcommand(
      "run", "Runs all three services on this machine, to the end");
  AddConfigArgument(command, options->config);
  command.AddOption(
      "--set", options->overrides, "key=value, overrides the file");
  command
      .AddOption("--ranks", options->ranks, "Trainer processes (trainer.ranks)")
      .Range(1, 4096);
  command.Does([options] { return Run(*options); });
}

}  // namespace dapd
