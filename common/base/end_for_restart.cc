#include "common/base/end_for_restart.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"

namespace dapd {

void EndForRestart(const absl::Status& why) {
  LogError(absl::StrCat("this process can no longer compute (",
                        std::string(why.message()),
                        "); it exits so that it can be restarted"));
  ::_exit(static_cast<int>(ExitCode::kRestart));
}

void EndForRestartAfter(unsigned seconds) {
  // What a handler may call is little: no log.
  ::signal(SIGALRM, [](int) {
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
