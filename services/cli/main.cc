// The `dapd` command; its subcommands are listed in command.h.

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/aside.h"
#include "common/base/crash_report.h"
#include "common/base/error_output.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/this_program.h"
#include "services/cli/command.h"
#include "services/cli/version_text.h"

namespace dapd {
namespace {

// Printed output is a result like a file, so losing it is an error.
absl::Status FlushPrinted() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return absl::OkStatus();
  }
  absl::Status lost = FileError("write to", "the standard output", errno);
  // A full disk has its own exit code.
  if (absl::IsResourceExhausted(lost)) return lost;
  return WithExitCode(std::move(lost), ExitCode::kData);
}

// Prints why the program ends, behind its output. A stop is no failure.
void Tell(const absl::Status& status) {
  std::fflush(stdout);
  const std::string message(status.message());
  if (!LogsJson()) {
    WriteErrorLine(absl::StrCat("dapd: ", PrintableLines(message), "\n"));
  } else if (ExitCodeOf(status) == ExitCode::kInterrupted) {
    LogInfo(message);
  } else {
    LogError(message);
  }
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  dapd::OpenStandardStreams();
  dapd::NameThisProcess();
  dapd::ReportCrashes();
  dapd::RemoveAsidesWhenStopped();
  dapd::CommandLine line(
      "Trains language models with Dual-Anchored Policy Distillation.", "dapd");
  line.RequireSubcommand();
  line.AddVersionFlag(&dapd::VersionText);
#define DAPD_ADD_COMMAND(Name) dapd::Add##Name##Command(line);
  DAPD_COMMANDS(DAPD_ADD_COMMAND)
#undef DAPD_ADD_COMMAND
  const auto code = line.Parse(argc, argv);
  if (code.has_value() && *code != 0) return *code;
  absl::Status status = code.has_value() ? absl::OkStatus() : line.Run();
  if (status.ok()) status = dapd::FlushPrinted();
  if (!status.ok()) dapd::Tell(status);
  return static_cast<int>(dapd::ExitCodeOf(status));
}
