#include "common/base/line_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

constexpr int kPollMilliseconds = 100;

// Passes on the whole lines of `text`, and the rest of it if that is too long
// for one line.
void TakeLines(std::string* text, const LineRelay::Sink& sink) {
  size_t begin = 0;
  for (size_t end = text->find('\n'); end != std::string::npos;
       end = text->find('\n', begin)) {
    sink(absl::string_view(*text).substr(begin, end - begin));
    begin = end + 1;
  }
  text->erase(0, begin);
  if (text->size() < LineRelay::kMaxLine) return;
  sink(*text);
  text->clear();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineRelay>> LineRelay::Start(Sink sink) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot make a pipe for a program's output: ", std::strerror(errno)));
  }
  // Only the reading end does not block, because writers expect their end to
  // block.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<LineRelay>(
      new LineRelay(ends[0], ends[1], std::move(sink)));
}

LineRelay::LineRelay(int reader, int writer, Sink sink)
    : reader_(reader),
      writer_(writer),
      sink_(std::move(sink)),
      thread_([this](const std::stop_token& stop) { Read(stop); }) {}

LineRelay::~LineRelay() {
  CloseWriter();
  thread_.request_stop();
  thread_.join();
  ::close(reader_);
}

void LineRelay::CloseWriter() {
  if (writer_ >= 0) ::close(writer_);
  writer_ = -1;
}

void LineRelay::Read(const std::stop_token& stop) const {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    // The stop is requested before the thread looks, so everything that was
    // written before the request is read.
    const bool stopping = stop.stop_requested();
    const ssize_t size = ::read(reader_, buffer, sizeof(buffer));
    if (size > 0) {
      text.append(buffer, static_cast<size_t>(size));
      TakeLines(&text, sink_);
      continue;
    }
    const bool empty = size < 0 && errno == EAGAIN;
    if (size == 0 || (empty && stopping)) break;
    if (!empty && errno != EINTR) break;
    pollfd wait = {reader_, POLLIN, 0};
    ::poll(&wait, 1, kPollMilliseconds);
  }
  if (!text.empty()) sink_(text);
}

}  // namespace dapd
