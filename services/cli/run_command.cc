// dapd run: all three services on this machine, followed to the end.

#include <cstdlib>
#include <memory>
#include <string>
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
#include "services/cli/command.h"
#include "services/cli/local_run.h"
#include "services/cli/run_supervisor.h"
#include "services/trainer/copy/run_copier.h"
#include "services/trainer/record/end_notice.h"
#include "services/trainer/record/run_outcome.h"

namespace dapd {
namespace {

struct RunOptions {
  std::string config;
  std::vector<std::string> overrides;
  int64_t ranks = 0;  // 0: as configured
};

// A trainer that stays when it is done (trainer.when_done: serve) is not waited
// for.
void TellWhenDone(const Config& config, EndNotice& notice) {
  if (config.trainer.when_done == "serve" &&
      FinishedStep(JoinPath(config.run.output_dir, config.run.name)) >=
          config.trainer.steps) {
    notice.Tell(absl::OkStatus());
  }
}

// Nothing is left to do but what the run's end may have lacked.
void CopyAgain(const Config& config, const std::string& folder) {
  LogInfo(absl::StrCat(folder,
                       " holds a finished run; what its copy at ",
                       config.checkpoint.copy_to,
                       " lacks is copied"));
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
  CatchStopRequests();
  const std::string folder = JoinPath(config.run.output_dir, config.run.name);
  if (FinishedStep(folder) >= config.trainer.steps &&
      config.run.resume != "never" && !config.checkpoint.copy_to.empty()) {
    CopyAgain(config, folder);
    return absl::OkStatus();
  }
  // The processes share the cores: a thread that spins while it waits would
  // take them from the others (kernels/parallel_for.h). A user's own setting
  // stays.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  ASSIGN_OR_RETURN(EndNotice notice, EndNotice::Create(config.run, [] {
                     return StopRequests() > 1;
                   }));
  // A trainer's end need not be the run's: this process tells of that.
  options.overrides.push_back("run.notify_url=");
  options.overrides.push_back("run.notify_secret_file=");
  options.overrides.push_back("run.notify_ca_file=");
  // This process stops its workers itself.
  options.overrides.push_back("run.stopped_worker=done");
  // LocalRun refuses for all of them: a trainer that is started again finds the
  // folder of the one before it.
  options.overrides.push_back("run.resume=auto");
  const absl::Time start = absl::Now();
  absl::Status outcome;
  {
    RunSupervisor supervisor;
    LocalRun run(options.config, options.overrides, config, supervisor);
    RETURN_IF_ERROR(run.Start());
    outcome = supervisor.Follow([&] { TellWhenDone(config, notice); });
  }
  if (const absl::Status corrected = CorrectOutcome(folder, outcome, start);
      !corrected.ok()) {
    LogWarning(std::string(corrected.message()));
  }
  notice.Tell(outcome);
  return outcome;
}

}  // namespace

void AddRunCommand(Command& app) {
  auto options = std::make_shared<RunOptions>();
  Command command = app.AddSubcommand(
      "run", "Runs all three services on this machine, to the end");
  command.AddOption("config", options->config, "YAML configuration").Required();
  command.AddOption(
      "--set", options->overrides, "key=value, overrides the file");
  command.AddOption(
      "--ranks", options->ranks, "Trainer processes (trainer.ranks)");
  command.Does([options] { return Run(*options); });
}

}  // namespace dapd
