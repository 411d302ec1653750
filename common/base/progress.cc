#include "common/base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/log.h"

namespace dapd {
namespace {

constexpr int kBarWidth = 24;
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kLogInterval = absl::Seconds(10);

std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), value < 10 ? "%.2f" : "%.0f", value);
  return text;
}

std::string Clock(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  char text[32];
  std::snprintf(text,
                sizeof(text),
                "%lld:%02lld",
                static_cast<long long>(whole / 60),
                static_cast<long long>(whole % 60));
  return text;
}

}  // namespace

Progress::Progress(std::string unit, int64_t total, int64_t done)
    : unit_(std::move(unit)),
      total_(total),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(absl::Now()),
      first_(done),
      done_(done) {}

Progress::~Progress() {
  if (is_terminal_ && done_ > first_) std::fputc('\n', stderr);
}

void Progress::Update(int64_t done, const std::string& note) {
  done_ = done;
  const absl::Time now = absl::Now();
  const bool last = done_ >= total_;
  if (is_terminal_) {
    if (!last && now - last_shown_ < kRedrawInterval) return;
    // Erases the rest of what stood there.
    std::fputs(absl::StrCat("\r", Line(note), "\x1b[K").c_str(), stderr);
  } else {
    if (!last && now - last_shown_ < kLogInterval) return;
    LogInfo(Line(note));
  }
  last_shown_ = now;
}

double Progress::EtaSeconds() const {
  if (done_ == first_) return 0.0;
  const double elapsed = absl::ToDoubleSeconds(absl::Now() - start_);
  return elapsed / static_cast<double>(done_ - first_) *
         static_cast<double>(total_ - done_);
}

std::string Progress::Line(const std::string& note) const {
  const double elapsed = absl::ToDoubleSeconds(absl::Now() - start_);
  const auto filled =
      static_cast<size_t>(kBarWidth * done_ / std::max<int64_t>(total_, 1));
  return absl::StrCat("[",
                      std::string(filled, '#'),
                      std::string(kBarWidth - filled, '.'),
                      "] ",
                      done_,
                      "/",
                      total_,
                      " ",
                      unit_,
                      "  ",
                      Rounded(static_cast<double>(done_ - first_) / elapsed),
                      "/s  ETA ",
                      Clock(EtaSeconds()),
                      "  ",
                      note);
}

}  // namespace dapd
