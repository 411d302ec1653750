// Writes whole lines, in their order, to the stderr of this process. No thread
// is blocked by a reader that does not read (a full pipe, a frozen terminal, a
// stopped parent).
//
// A thread does the writing. The caller waits for it, so that the line has been
// written when the call returns, even if the process crashes next. Once the
// reader has taken nothing for kReaderPatience, callers no longer wait. Up to
// kMaxUnreadBytes of lines are then kept until the reader comes back; further
// lines are dropped and counted, and a line reports their number. Thread-safe.
// The process has one such output, which also works in a forked child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace dapd {

inline constexpr absl::Duration kReaderPatience = absl::Milliseconds(100);
inline constexpr size_t kMaxUnreadBytes = 1 << 20;

// At the end of the process kept lines are still written if somebody reads,
// even slowly: at least some bytes within each kEndPatience, and all of them
// within kLongestEnd.
inline constexpr absl::Duration kEndPatience = absl::Milliseconds(500);
inline constexpr absl::Duration kLongestEnd = absl::Seconds(10);

// PatientOutput does the same for any descriptor.
class PatientOutput {
 public:
  // `describe_dropped` makes the line, with its newline, that reports a number
  // of dropped lines. It is called on the writing thread.
  PatientOutput(int descriptor,
                std::function<std::string(int64_t)> describe_dropped);
  // Flushes. The rest, and the thread that writes it, end with the process.
  ~PatientOutput();
  PatientOutput(const PatientOutput&) = delete;
  PatientOutput& operator=(const PatientOutput&) = delete;

  // Writes `line`, which has its newline, with one write(2) if the kernel takes
  // it whole: any line to a file, otherwise up to PIPE_BUF bytes.
  void Write(std::string line);
  // Writes `text` if nothing waits to be written; otherwise drops it without
  // counting it. For output that shows only the present, such as a progress
  // bar.
  void Offer(std::string text);
  // Waits for kept lines in the same way as the end of the process.
  void Flush();

  // Call these around fork(): the child starts its own thread when it first
  // writes.
  void BeforeFork();
  void AfterFork(bool is_child);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's, too
};

// These use the output of the process, which is flushed at exit. Code that ends
// the process by _exit() calls FlushErrorOutput() first.
void WriteErrorLine(std::string line);
void OfferErrorText(std::string text);
void FlushErrorOutput();

// Sets the text that reports dropped lines. Call it before any thread starts.
void DescribeDroppedLines(std::string (*describe)(int64_t));

}  // namespace dapd
