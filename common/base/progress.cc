#include "common/base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

#include "common/base/error_output.h"
#include "common/base/log.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

constexpr size_t kBarWidth = 24;
constexpr size_t kMinBarWidth = 8;
constexpr size_t kMaxUpdates = 21;  // the ends of the last 20
constexpr size_t kDefaultColumns = 80;
constexpr absl::Duration kFirstShown = absl::Milliseconds(500);
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kLogInterval = absl::Seconds(30);

std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), value < 10 ? "%.2f" : "%.0f", value);
  return text;
}

// Returns "0:12", "59:59", "26:00:00".
std::string Clock(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  char text[48];
  if (whole < 3600) {
    std::snprintf(text,
                  sizeof(text),
                  "%lld:%02lld",
                  static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text,
                  sizeof(text),
                  "%lld:%02lld:%02lld",
                  static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60),
                  static_cast<long long>(whole % 60));
  }
  return text;
}

// Leaves out the last parts of the line that have no room, each as a whole,
// since half a number would be another number.
std::string Fitted(const std::string& line, size_t columns) {
  if (line.size() <= columns) return line;
  const size_t end = line.rfind("  ", columns);
  return line.substr(0, end == std::string::npos ? columns : end);
}

// A line that is wrapped could not be redrawn in place.
size_t TerminalWidth() {
  winsize size = {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
             ? size.ws_col
             : kDefaultColumns;
}

}  // namespace

ProgressMeter::ProgressMeter(std::string unit,
                             int64_t total,
                             int64_t done,
                             absl::Time now)
    : unit_(std::move(unit)), total_(total), updates_({{now, done}}) {}

void ProgressMeter::Update(int64_t done, absl::Time now) {
  if (done == updates_.back().second) return;
  updates_.emplace_back(now, done);
  if (updates_.size() > kMaxUpdates) updates_.pop_front();
}

void ProgressMeter::Begin(absl::Time now) {
  const int64_t done = updates_.back().second;
  updates_ = {{now, done}};
}

double ProgressMeter::SecondsPerUnit() const {
  const auto& [first_time, first_done] = updates_.front();
  const auto& [last_time, last_done] = updates_.back();
  if (last_done == first_done) return 0.0;
  return absl::ToDoubleSeconds(last_time - first_time) /
         static_cast<double>(last_done - first_done);
}

double ProgressMeter::EtaSeconds() const {
  const int64_t left = std::max<int64_t>(0, total_ - updates_.back().second);
  return static_cast<double>(left) * SecondsPerUnit();
}

std::string ProgressMeter::Line(const std::string& note, size_t columns) const {
  const int64_t done = updates_.back().second;
  const double seconds = SecondsPerUnit();
  const std::string rate =
      seconds > 0 ? absl::StrCat("  ", Rounded(1.0 / seconds), "/s") : "";
  const std::string tail = note.empty() ? "" : absl::StrCat("  ", note);
  if (total_ == 0) {
    return Fitted(absl::StrCat(done, " ", unit_, rate, tail), columns);
  }
  const std::string text = absl::StrCat(
      "] ",
      done,
      "/",
      total_,
      " ",
      unit_,
      rate,
      rate.empty() ? "" : absl::StrCat("  ETA ", Clock(EtaSeconds())),
      tail);
  const size_t room = columns - std::min(columns, text.size() + 1);
  const size_t width = std::clamp(room, kMinBarWidth, kBarWidth);
  const auto filled = static_cast<size_t>(std::clamp<int64_t>(
      static_cast<int64_t>(width) * done / total_, 0, width));
  return Fitted(absl::StrCat("[",
                             std::string(filled, '#'),
                             std::string(width - filled, '.'),
                             text),
                columns);
}

Progress::Progress(std::string unit, int64_t total, int64_t done)
    : is_terminal_(::isatty(STDERR_FILENO) == 1 && !LogsJson()),
      meter_(std::move(unit), total, done, SteadyNow()),
      next_shown_(SteadyNow() + (is_terminal_ ? kFirstShown : kLogInterval)) {}

Progress::~Progress() {
  if (!has_line_) return;
  if (is_pending_) Show(SteadyNow());
  WriteErrorLine("\n");
}

void Progress::Update(int64_t done, const std::string& note) {
  const absl::Time now = SteadyNow();
  meter_.Update(done, now);
  note_ = note;
  is_pending_ = true;
  if (now >= next_shown_) Show(now);
}

void Progress::Begin() { meter_.Begin(SteadyNow()); }

void Progress::Show(absl::Time now) {
  if (is_terminal_) {
    // \x1b[K erases the rest of the old line.
    const std::string line = meter_.Line(note_, TerminalWidth() - 1);
    OfferErrorText(absl::StrCat("\r", line, "\x1b[K"));
    has_line_ = true;
  } else {
    LogInfo(meter_.Line(note_));
  }
  is_pending_ = false;
  next_shown_ = now + (is_terminal_ ? kRedrawInterval : kLogInterval);
}

}  // namespace dapd
