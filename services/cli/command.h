// The subcommands of `dapd`, listed only here: <Name> is Add<Name>Command in a
// file of its own. A new subcommand needs its file, a row here and the file's
// name in CMakeLists.txt; a test compares the list with `dapd --help` and with
// the README.
#pragma once

#include "common/base/command_line.h"

// The commands in the order of the help text.
#define DAPD_COMMANDS(COMMAND) \
  COMMAND(Run)                 \
  COMMAND(Check)               \
  COMMAND(Status)              \
  COMMAND(Health)              \
  COMMAND(Keep)                \
  COMMAND(Answers)             \
  COMMAND(Runs)                \
  COMMAND(Compare)             \
  COMMAND(Sweep)               \
  COMMAND(Restore)             \
  COMMAND(Replay)              \
  COMMAND(Eval)                \
  COMMAND(Grade)               \
  COMMAND(Probe)               \
  COMMAND(Generate)            \
  COMMAND(Serve)               \
  COMMAND(Score)               \
  COMMAND(Adapter)             \
  COMMAND(Views)               \
  COMMAND(Tokenize)            \
  COMMAND(Render)              \
  COMMAND(Problems)            \
  COMMAND(Config)              \
  COMMAND(ConfigReference)

namespace dapd {

// Adds the subcommand, with its options and its action, to `app`.
#define DAPD_DECLARE_COMMAND(Name) void Add##Name##Command(Command& app);
DAPD_COMMANDS(DAPD_DECLARE_COMMAND)
#undef DAPD_DECLARE_COMMAND

}  // namespace dapd
