// ChildProcess: a program that this process starts, watches and stops.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/base/line_relay.h"
#include "common/base/memory_kills.h"

namespace dapd {

// The pause between two looks at children (ChildProcess::Poll) in a loop that
// waits for them.
inline constexpr absl::Duration kChildPollInterval = absl::Milliseconds(100);

// One child at a time. It runs in its own process group, so that Ctrl-C reaches
// only the parent, and the kernel sends it SIGTERM if the parent dies. Not
// thread-safe.
class ChildProcess {
 public:
  // With an empty `log_path` the child shares the stderr of this process.
  // Otherwise its stdout and stderr are appended to that file. `environment`
  // has entries "NAME=value", in addition to the environment of this process.
  ChildProcess(std::string name,
               std::vector<std::string> command,
               std::string log_path,
               std::vector<std::string> environment = {});
  // Ends the child if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The child's stdout and stderr go to `sink`, line by line. Call it before
  // Start(). When Poll() reports the end of the child, all of its lines have
  // arrived.
  void RelayLines(LineRelay::Sink sink) { sink_ = std::move(sink); }

  // The child writes its progress to the file `path` (work_mark.h). An older
  // file is removed. Call it before Start().
  void MarkWorkIn(std::string path);

  absl::Status Start();
  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }
  const std::string& log_path() const { return log_path_; }

  // Checks, without waiting, whether the child has ended since the last call,
  // and returns its exit code (128 + signal if a signal ended it). Returns -1
  // if it still runs or was never started.
  int Poll();
  // Returns HowItEnded (process_end.h) for a code that Poll() returned. For
  // SIGKILL it also says who sent the signal, as far as that is known
  // (memory_kills.h).
  std::string HowItEnded(int code) const;
  // Sends SIGTERM and, after `grace`, SIGKILL. Returns when the child has
  // ended.
  void Stop(absl::Duration grace);
  void Signal(int signal_number);

  // Returns whether the child has made progress (MarkWorkIn) since its last
  // start. Always false without MarkWorkIn.
  bool HasWorked() const;

  // Returns the last lines of the child's log, at most 64 KiB, for an error
  // message (printable.h). All lines but the first are indented by two spaces.
  // If the log ends with a crash report (crash_report.h), the whole beginning
  // of the report is included.
  std::string LogTail() const;

 private:
  const std::string name_;
  const std::vector<std::string> command_;
  const std::string log_path_;
  std::vector<std::string> environment_;
  std::string work_mark_;  // the file; empty: none
  int64_t mark_at_start_ = 0;
  LineRelay::Sink sink_;
  std::unique_ptr<LineRelay> relay_;
  pid_t pid_ = -1;
  MemoryKills kills_at_start_;
  std::string who_killed_;  // of its last end
};

}  // namespace dapd
