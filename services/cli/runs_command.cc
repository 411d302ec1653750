// dapd runs: lists runs with their states.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "services/cli/command.h"
#include "services/cli/runs_text.h"

namespace dapd {
namespace {

struct RunsOptions {
  std::string folder;
  bool json = false;
};

absl::Status List(const RunsOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<ListedRun> runs, ListRuns(options.folder));
  // A folder's name may hold any bytes.
  const std::string text =
      options.json
          ? RunsJson(runs, options.folder)
                    .dump(2,
                          ' ',
                          false,
                          nlohmann::ordered_json::error_handler_t::replace) +
                "\n"
          : RunsText(runs, options.folder, absl::Now());
  if (runs.empty()) LogInfo(absl::StrCat("no runs in ", options.folder));
  if (!runs.empty() || options.json) std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddRunsCommand(Command& app) {
  auto options = std::make_shared<RunsOptions>();
  Command command =
      app.AddSubcommand("runs", "Lists the runs of a folder with their state");
  command.RequireSubcommand();
  Command list = command.AddSubcommand(
      "list",
      "Prints state, step, loss, held-out accuracy and "
      "adapter of each run, including the runs of sweeps");
  list.AddOption("folder", options->folder, "run.output_dir, or a run's folder")
      .Path()
      .Required();
  list.AddFlag("--json", options->json, "print JSON");
  list.Does([options] { return List(*options); });
}

}  // namespace dapd
