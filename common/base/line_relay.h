// LineRelay: takes the output of another program line by line.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// A pipe and a thread that reads it. Everything that a writer wrote before the
// relay is destroyed is delivered. The destructor does not wait for writers
// that remain; their next write fails.
class LineRelay {
 public:
  // Called on the reading thread with each line without its newline, and with
  // the text after the last newline. A line of more than kMaxLine bytes comes
  // in pieces.
  using Sink = std::function<void(absl::string_view line)>;
  static constexpr size_t kMaxLine = 1 << 20;

  // Returns RESOURCE_EXHAUSTED if no pipe can be created.
  static absl::StatusOr<std::unique_ptr<LineRelay>> Start(Sink sink);
  ~LineRelay();
  LineRelay(const LineRelay&) = delete;
  LineRelay& operator=(const LineRelay&) = delete;

  // Returns the writing end. It is closed when a program is executed, unless it
  // was duplicated. -1 after CloseWriter().
  int writer() const { return writer_; }
  // Call it once the other program has its own copy of the writing end;
  // otherwise the end of the output is never seen.
  void CloseWriter();

 private:
  LineRelay(int reader, int writer, Sink sink);
  void Read(const std::stop_token& stop) const;

  const int reader_;
  int writer_;
  const Sink sink_;
  std::jthread thread_;
};

}  // namespace dapd
