// How a subcommand of `dapd` plugs in: one file each, listed in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "absl/status/status.h"

namespace dapd {

// What the chosen subcommand does once the command line is parsed. The exit
// code is ExitCodeOf its Status.
using Action = std::function<absl::Status()>;

// Each adds its subcommand with options to `app` and, when the user chose it,
// sets *action in the subcommand's callback.
void AddAdapterCommand(CLI::App& app, Action* action);
void AddCheckCommand(CLI::App& app, Action* action);
void AddConfigReferenceCommand(CLI::App& app, Action* action);
void AddEvalCommand(CLI::App& app, Action* action);
void AddGenerateCommand(CLI::App& app, Action* action);
void AddHealthCommand(CLI::App& app, Action* action);
void AddProblemsCommand(CLI::App& app, Action* action);
void AddRenderCommand(CLI::App& app, Action* action);
void AddReplayCommand(CLI::App& app, Action* action);
void AddRunCommand(CLI::App& app, Action* action);
void AddScoreCommand(CLI::App& app, Action* action);
void AddStatusCommand(CLI::App& app, Action* action);
void AddTokenizeCommand(CLI::App& app, Action* action);
void AddViewsCommand(CLI::App& app, Action* action);

}  // namespace dapd
