// LineProcess: a program that answers lines, one each, over its standard input
// and output. For helpers in another language that may die or hang.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace dapd {

// One child at a time, in its own process group; it gets SIGTERM from the
// kernel should we die, and shares our stderr. Not thread-safe.
class LineProcess {
 public:
  // `command`: program, which is looked for in PATH, and arguments. `name`
  // leads the error messages.
  LineProcess(std::string name, std::vector<std::string> command);
  // Kills the child.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // RESOURCE_EXHAUSTED if there is no process to be had. A program that cannot
  // be run shows at the first line.
  absl::Status Start();
  bool running() const { return pid_ > 0; }
  // Whether a signal that was not Kill's ended it: nothing that it did itself.
  bool was_killed() const { return was_killed_; }

  // Sends `line`, which has no newline, and a newline. `deadline` here and
  // below: by SteadyNow().
  //   DEADLINE_EXCEEDED  the child did not take it in time
  //   UNAVAILABLE        the child ended; names its exit code or signal
  absl::Status Write(absl::string_view line, absl::Time deadline);
  // The next line, without its newline, of at most 128 MiB; errors as Write's,
  // and RESOURCE_EXHAUSTED for a longer one.
  absl::StatusOr<std::string> Read(absl::Time deadline);

  // Kills the child, if it runs, with all that it started.
  void Kill();

 private:
  absl::Status Wait(short events, absl::Time deadline);
  absl::Status Ended();

  const std::string name_;
  const std::vector<std::string> command_;
  pid_t pid_ = -1;
  int socket_ = -1;  // our end of its standard input and output
  std::string buffer_;
  bool was_killed_ = false;
};

}  // namespace dapd
