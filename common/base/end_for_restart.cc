#include "common/base/end_for_restart.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/error_output.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"

namespace dapd {

void EndForRestart(const absl::Status& why) {
  LogError(absl::StrCat("this process can no longer compute (",
                        std::string(why.message()),
                        "); it exits so that it can be restarted"));
  FlushErrorOutput();
  ::_exit(static_cast<int>(ExitCode::kRestart));
}

void EndForRestartAfter(unsigned seconds) {
  // A signal handler may not use the log. A second alarm ends the process if
  // nobody reads the line that is written here.
  ::signal(SIGALRM, [](int) {
    ::signal(SIGALRM,
             [](int) { ::_exit(static_cast<int>(ExitCode::kRestart)); });
    ::alarm(1);
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    ::pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
    constexpr char kWhy[] =
        "this process waited too long for its device at its end; it exits so "
        "that it can be restarted\n";
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, kWhy, std::strlen(kWhy));
    ::_exit(static_cast<int>(ExitCode::kRestart));
  });
  ::alarm(seconds);
}

}  // namespace dapd
