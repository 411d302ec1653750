// The output of this process on stderr: whole lines, in their order. No thread
// is held up by a reader who does not read (a full pipe, a frozen terminal,
// a parent that is stopped).
//
// A thread does the writing. Whoever writes waits for it, so that a line is
// where it belongs when the call returns, even if the process crashes next.
// Once nothing has been taken for kReaderPatience nobody waits any more, and up
// to kMaxUnreadBytes of lines are kept until the reader comes back; those that
// come then are dropped and counted, and a line says how many there were.
// Thread-safe. One for the process, which also writes for a forked child.
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

// At the end of the process lines that are kept are waited for as long as
// somebody reads, if slowly: some within each kEndPatience, all within
// kLongestEnd.
inline constexpr absl::Duration kEndPatience = absl::Milliseconds(500);
inline constexpr absl::Duration kLongestEnd = absl::Seconds(10);

// The same for any descriptor.
class PatientOutput {
 public:
  // `describe_dropped`: the line, with its newline, for a number of lines that
  // were dropped; called on the thread.
  PatientOutput(int descriptor,
                std::function<std::string(int64_t)> describe_dropped);
  // Flushes. What is left, and the thread that writes it, ends with the
  // process.
  ~PatientOutput();
  PatientOutput(const PatientOutput&) = delete;
  PatientOutput& operator=(const PatientOutput&) = delete;

  // `line` with its newline, by one write(2) where that takes it whole: into a
  // file any line, otherwise up to PIPE_BUF bytes.
  void Write(std::string line);
  // `text` shows only the present, as a bar does: it is left out, and not
  // counted, while anything waits to be written.
  void Offer(std::string text);
  // Waits for what is kept, as at the end of the process.
  void Flush();

  // Around fork(): the child has no such thread until it writes.
  void BeforeFork();
  void AfterFork(bool is_child);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's, too
};

// By the process's own, which flushes as the process exits; whoever ends it by
// _exit() calls FlushErrorOutput() first.
void WriteErrorLine(std::string line);
void OfferErrorText(std::string text);
void FlushErrorOutput();

// Before any thread starts: how dropped lines are told.
void DescribeDroppedLines(std::string (*describe)(int64_t));

}  // namespace dapd
