// dapd sweep: runs many configurations and compares them.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stop_requests.h"
#include "services/cli/command.h"
#include "services/cli/compare/comparison.h"
#include "services/cli/sweep/sweep_data.h"
#include "services/cli/sweep/sweep_plan.h"
#include "services/cli/sweep/sweep_runner.h"

namespace dapd {
namespace {

struct SweepOptions {
  std::string sweep;
  std::vector<std::string> overrides;
  bool plan_only = false;
};

void PrintPlan(const SweepPlan& plan) {
  for (const SweepRun& run : plan.runs) {
    std::puts(absl::StrFormat("%-40s %6.2f GiB, %d steps%s",
                              run.name,
                              run.memory_bytes / (1 << 30),
                              run.config.trainer.steps,
                              run.done ? ", done" : "")
                  .c_str());
  }
  std::puts(absl::StrFormat("%d runs, at most %d at a time, in %s",
                            plan.runs.size(),
                            plan.parallel,
                            plan.folder)
                .c_str());
}

// Writes the table to stdout and the page into the sweep's folder, with the
// runs that completed a step.
absl::Status ShowComparison(const SweepPlan& plan) {
  std::vector<RunResults> runs;
  for (const SweepRun& run : plan.runs) {
    if (!FileExists(JoinPath(run.folder, "config.yaml"))) continue;
    ASSIGN_OR_RETURN(RunResults results, ReadRunResults(run.folder));
    runs.push_back(std::move(results));
  }
  if (runs.empty()) return absl::OkStatus();
  const Comparison comparison = CompareRuns(std::move(runs));
  const std::string page = JoinPath(plan.folder, "compare.html");
  RETURN_IF_ERROR(WriteFileAtomically(page, ComparisonHtml(comparison)));
  std::fputs(ComparisonText(comparison).c_str(), stdout);
  std::fflush(stdout);  // before the log's next line, which may go there too
  LogInfo(absl::StrCat("curves: ", page));
  return absl::OkStatus();
}

absl::Status Sweep(const SweepOptions& options) {
  SetLogName("sweep");
  ASSIGN_OR_RETURN(const SweepPlan plan,
                   ReadSweep(options.sweep, options.overrides));
  RETURN_IF_ERROR(CheckSweepData(plan));
  if (options.plan_only) {
    PrintPlan(plan);
    return absl::OkStatus();
  }
  CatchStopRequests();
  const absl::Status outcome = SweepRunner(plan).Run();
  const absl::Status shown = ShowComparison(plan);
  return outcome.ok() ? shown : outcome;
}

}  // namespace

void AddSweepCommand(Command& app) {
  auto options = std::make_shared<SweepOptions>();
  Command command = app.AddSubcommand(
      "sweep", "Performs many runs, settings x seeds, and compares them");
  command.AddOption("sweep", options->sweep, "YAML file of the sweep")
      .Path()
      .Required();
  command.AddOption("--set", options->overrides, "key=value, for every run")
      .TakeAll();
  command.AddFlag(
      "--plan", options->plan_only, "only print the runs and their memory");
  command.Does([options] { return Sweep(*options); });
}

}  // namespace dapd
