// LineRelay: what another program writes, taken from it line by line.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// A pipe and a thread that reads it. Nothing a writer wrote before the relay is
// destroyed is lost; destroying it does not wait for writers that are left
// over, whose next write fails.
class LineRelay {
 public:
  // Called on the thread with each line, without its newline; also with what
  // stands behind the last newline. A line beyond kMaxLine bytes comes in
  // pieces.
  using Sink = std::function<void(absl::string_view line)>;
  static constexpr size_t kMaxLine = 1 << 20;

  // RESOURCE_EXHAUSTED if there is no pipe to be had.
  static absl::StatusOr<std::unique_ptr<LineRelay>> Start(Sink sink);
  ~LineRelay();
  LineRelay(const LineRelay&) = delete;
  LineRelay& operator=(const LineRelay&) = delete;

  // The end to write to; closed when a program is executed, but for a
  // duplicate. -1 after CloseWriter().
  int writer() const { return writer_; }
  // Once the other program has its own: otherwise its end never shows.
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
