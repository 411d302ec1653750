// dapd keep: runs one service and starts it again when it crashes. For
// containers whose platform would start it again after any end, without a
// limit.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/child_process.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/process_end.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/stop_requests.h"
#include "common/base/this_program.h"
#include "services/cli/command.h"
#include "services/cli/crash_text.h"
#include "services/cli/restarts.h"

namespace dapd {
namespace {

constexpr absl::Duration kKeepPollInterval = absl::Milliseconds(100);

// Finds "dapd-teacher" beside this program; a path stays as it is.
std::string FindProgram(const std::string& program) {
  const std::filesystem::path beside =
      std::filesystem::path(ThisProgram()).parent_path() / program;
  return program.find('/') == std::string::npos ? beside.string() : program;
}

// Waits for the child and returns its exit code. Passes on every request to
// stop this process.
int AwaitEnd(ChildProcess& child) {
  int told = 0;
  while (true) {
    if (const int code = child.Poll(); code >= 0) return code;
    for (; told < StopRequests(); ++told) child.Signal(SIGTERM);
    absl::SleepFor(kKeepPollInterval);
  }
}

// Sleeps until `time` or a request to stop this process.
void SleepUntil(absl::Time time) {
  while (SteadyNow() < time && StopRequests() == 0) {
    absl::SleepFor(kKeepPollInterval);
  }
}

absl::Status Keep(std::vector<std::string> command) {
  CatchStopRequests();
  const std::string name = command[0];
  command[0] = FindProgram(command[0]);
  if (::access(command[0].c_str(), X_OK) != 0) {
    return WithExitCode(FileError("start", command[0], errno),
                        ExitCode::kUsage);
  }
  // In memory, since a container may have no writable folder.
  const int mark = ::memfd_create("work", MFD_CLOEXEC);
  if (mark < 0) return FileError("create", "a file in memory", errno);
  const absl::Cleanup close_mark = [mark] { ::close(mark); };
  ChildProcess child(name, command, /*log_path=*/"");
  child.MarkWorkIn(absl::StrCat("/proc/", ::getpid(), "/fd/", mark));
  Restarts restarts({});
  while (true) {
    restarts.Started(SteadyNow());
    RETURN_IF_ERROR(child.Start());
    const int code = AwaitEnd(child);
    if (code == 0) return absl::OkStatus();
    const std::optional<absl::Time> next =
        IsCrash(code) ? restarts.Ended(code, child.HasWorked(), SteadyNow())
                      : std::nullopt;
    if (!next.has_value() || StopRequests() > 0) {
      return WithExitCode(
          absl::InternalError(
              IsCrash(code) ? CrashText(child, code, restarts)
                            : absl::StrCat(name, " ", child.HowItEnded(code))),
          static_cast<ExitCode>(code));
    }
    LogWarning(absl::StrCat(name,
                            " ",
                            HowItDied(child, code),
                            "; restarting it in ",
                            absl::FormatDuration(*next - SteadyNow())));
    SleepUntil(*next);
    if (StopRequests() > 0) {
      return absl::CancelledError(
          absl::StrCat("stopped before ", name, " was started again"));
    }
  }
}

}  // namespace

void AddKeepCommand(Command& app) {
  auto options = std::make_shared<std::vector<std::string>>();
  Command command = app.AddSubcommand(
      "keep",
      "Runs one service, whose command line follows, and starts it again when "
      "it crashes");
  command.TakeRest(*options);
  command.Does([options] { return Keep(*options); });
}

}  // namespace dapd
