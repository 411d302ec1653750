// The `dapd` command; its subcommands are listed in command.h.

#include <cstdio>
#include <string>

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/this_program.h"
#include "services/cli/command.h"
#include "services/cli/version_text.h"

int main(int argc, char** argv) {
  dapd::NameThisProcess();
  dapd::CommandLine line(
      "Trains language models with Dual-Anchored Policy Distillation.", "dapd");
  line.RequireSubcommand();
  line.AddVersionFlag(&dapd::VersionText);
#define DAPD_ADD_COMMAND(Name) dapd::Add##Name##Command(line);
  DAPD_COMMANDS(DAPD_ADD_COMMAND)
#undef DAPD_ADD_COMMAND
  if (const auto code = line.Parse(argc, argv)) return *code;
  const absl::Status status = line.Run();
  if (!status.ok() && dapd::LogsJson()) {
    dapd::LogError(std::string(status.message()));
  } else if (!status.ok()) {
    std::fprintf(
        stderr, "dapd: %s\n", dapd::PrintableLines(status.message()).c_str());
  }
  return static_cast<int>(dapd::ExitCodeOf(status));
}
