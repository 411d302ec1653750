// LineProcess: a program that answers each line on its standard input with one
// line on its standard output. For helpers in another language that may die or
// hang.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/line_relay.h"

namespace dapd {

struct LineProcessOptions {
  size_t max_line_bytes = size_t{128} << 20;
  // Bytes of address space that each process of the child may take (RLIMIT_AS);
  // 0: no limit. With a limit the child writes no core files, either.
  uint64_t memory_bytes = 0;
  // Gets the lines of the child's stderr, on another thread; null: the child
  // shares our stderr.
  LineRelay::Sink on_error_line;
  // Looked at about ten times a second while the child is waited for; true ends
  // the wait with CANCELLED. Null: never.
  std::function<bool()> gives_up;
};

// One child at a time, in its own process group. The kernel sends it SIGTERM if
// the thread that started it ends. Not thread-safe.
class LineProcess {
 public:
  // `command` is a program, which is looked up in PATH, with its arguments.
  // `name` begins the error messages.
  LineProcess(std::string name,
              std::vector<std::string> command,
              LineProcessOptions options = {});
  // Kills the child.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Returns RESOURCE_EXHAUSTED if no process can be started. If the program
  // itself cannot be executed, the first line fails.
  absl::Status Start();
  bool running() const { return pid_ > 0; }
  // Returns whether a signal ended the child that Kill() did not send, so that
  // the child is not to blame.
  bool was_killed() const { return was_killed_; }

  // Sends `line`, which has no newline, and a newline. Deadlines are times of
  // SteadyNow().
  //   DEADLINE_EXCEEDED  the child did not take it in time
  //   UNAVAILABLE        the child ended; names its exit code or signal
  absl::Status Write(absl::string_view line, absl::Time deadline);
  // Returns the next line without its newline, at most max_line_bytes. Returns
  // the errors of Write, and RESOURCE_EXHAUSTED for a longer line.
  absl::StatusOr<std::string> Read(absl::Time deadline);

  // Kills the child, if it runs, and every process that it has started.
  void Kill();

 private:
  absl::Status Wait(short events, absl::Time deadline);
  absl::Status Ended();

  const std::string name_;
  const std::vector<std::string> command_;
  const LineProcessOptions options_;
  std::unique_ptr<LineRelay> errors_;  // of the child's stderr
  pid_t pid_ = -1;
  int socket_ = -1;  // our end of its standard input and output
  std::string buffer_;
  bool was_killed_ = false;
};

}  // namespace dapd
