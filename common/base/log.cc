#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/printable.h"

namespace dapd {
namespace {

std::string& LogName() {
  static std::string& name = *new std::string("dapd");
  return name;
}

std::atomic<Severity> min_severity{Severity::kInfo};

}  // namespace

void SetLogName(const std::string& name) { LogName() = name; }

void SetMinLogSeverity(Severity severity) { min_severity = severity; }

void Log(Severity severity, const std::string& message) {
  if (severity < min_severity.load()) return;
  const char letter = "IWE"[static_cast<int>(severity)];
  static const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  const std::string line = absl::StrCat(
      // A progress line may stand there, of this process or of another one.
      is_terminal ? "\r\x1b[K" : "",
      std::string(1, letter),
      " ",
      absl::FormatTime(
          "%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
      " ",
      LogName(),
      "] ",
      PrintableLines(message),
      "\n");
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] ssize_t written =
      ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace dapd
