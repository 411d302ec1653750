// A program that this one starts, watches and stops.
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
// only us, and it gets SIGTERM from the kernel should we die. Not thread-safe.
class ChildProcess {
 public:
  // `log_path` empty: shares our stderr. Otherwise stdout and stderr are
  // appended to that file. `environment`: "NAME=value", beside our own.
  ChildProcess(std::string name,
               std::vector<std::string> command,
               std::string log_path,
               std::vector<std::string> environment = {});
  // Ends the child if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Instead of sharing our stderr the child writes to `sink`, stdout and
  // stderr. Before Start(). All lines have come when Poll() tells the child's
  // end.
  void RelayLines(LineRelay::Sink sink) { sink_ = std::move(sink); }

  // The child says in the file `path`, how far it has come (work_mark.h).
  // An older one is removed. Before Start().
  void MarkWorkIn(std::string path);

  absl::Status Start();
  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }
  const std::string& log_path() const { return log_path_; }

  // Looks, without waiting, whether the child ended since; its exit code then
  // (128 + signal if a signal ended it). -1: it still runs or never ran.
  int Poll();
  // As process_end.h's, of the code that Poll() told; of SIGKILL also who sent
  // it, as far as that is known (memory_kills.h).
  std::string HowItEnded(int code) const;
  // SIGTERM; after `grace` SIGKILL. Returns when it is gone.
  void Stop(absl::Duration grace);
  void Signal(int signal_number);

  // Whether it has come further since its last start than before. False without
  // MarkWorkIn.
  bool HasWorked() const;

  // The last lines of its log, of at most 64 KiB, for an error message
  // (printable.h): all but the first are indented by two spaces. Where the log
  // ends with the report of a crash (crash_report.h), all that the report says
  // first.
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
