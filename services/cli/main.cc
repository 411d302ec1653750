// The `dapd` command: one subcommand a file, listed here.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "services/cli/command.h"

int main(int argc, char** argv) {
  CLI::App app("Trains language models with Dual-Anchored Policy Distillation.",
               "dapd");
  app.require_subcommand(1);
  app.set_version_flag("--version", DAPD_VERSION);
  dapd::Action action;
  dapd::AddRunCommand(app, &action);
  dapd::AddCheckCommand(app, &action);
  dapd::AddStatusCommand(app, &action);
  dapd::AddHealthCommand(app, &action);
  dapd::AddReplayCommand(app, &action);
  dapd::AddEvalCommand(app, &action);
  dapd::AddGenerateCommand(app, &action);
  dapd::AddScoreCommand(app, &action);
  dapd::AddAdapterCommand(app, &action);
  dapd::AddViewsCommand(app, &action);
  dapd::AddTokenizeCommand(app, &action);
  dapd::AddRenderCommand(app, &action);
  dapd::AddProblemsCommand(app, &action);
  dapd::AddConfigReferenceCommand(app, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are no errors; everything else is a usage error.
    return app.exit(error) == 0 ? 0 : static_cast<int>(dapd::ExitCode::kUsage);
  }
  const absl::Status status = action();
  if (!status.ok()) {
    std::fprintf(stderr, "dapd: %s\n", std::string(status.message()).c_str());
  }
  return static_cast<int>(dapd::ExitCodeOf(status));
}
