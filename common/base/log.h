// One line a message on stderr, as text
//   I 2026-01-31T12:00:00.123Z rollout] message
// (`trainer-2]` of a rank other than 0)
// or as an object of JSON, whose fields stand in this order and are left out
// where nothing is known of them:
//   {"time": "2026-01-31T12:00:00.123Z", "level": "info", "service": "trainer",
//    "run": "mine", "rank": 0, "step": 12, "message": "message"}
// What a message quotes is escaped (printable.h); as text its own further lines
// begin with two spaces.
// A function, not a macro: c10 and newer Abseil both define LOG.
// Thread-safe. A line is written with one write(2) where the kernel takes it
// whole; then no line of another process comes between, neither in a file that
// both append to, nor, up to PIPE_BUF (4,096 bytes), in a pipe. Nobody waits
// for a reader who does not read (error_output.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace dapd {

enum class Severity { kInfo, kWarning, kError };
constexpr auto NameTable(Severity) {
  return std::array{"info", "warning", "error"};
}

enum class LogFormat { kText, kJson };
constexpr auto NameTable(LogFormat) { return std::array{"text", "json"}; }

// What every line of this process says of itself.
struct LogSource {
  std::string service = "dapd";  // "rollout"
  std::string run;               // empty: of no run
  int64_t rank = -1;             // negative: none
};

struct LogSettings {
  LogFormat format = LogFormat::kText;
  Severity min_severity = Severity::kInfo;  // messages below it are dropped
  LogSource source;
};

// Before any thread starts.
void SetLog(LogSettings settings);

// The same for the name and the level alone.
void SetLogName(const std::string& name);
void SetMinLogSeverity(Severity severity);

// The optimizer step that is worked at from here on; 0: none.
void SetLogStep(int64_t step);

// Whether whoever reads this log expects JSON: nothing else should then be
// written to stderr, no progress bar either.
bool LogsJson();

void Log(Severity severity, const std::string& message);
inline void LogInfo(const std::string& message) {
  Log(Severity::kInfo, message);
}
inline void LogWarning(const std::string& message) {
  Log(Severity::kWarning, message);
}
inline void LogError(const std::string& message) {
  Log(Severity::kError, message);
}

// A line that another program of this run, `source`, wrote, without its
// newline. A line of JSON log is passed on as it is. Anything else (the last
// words of a library or of a program that crashes) becomes the message of a
// warning of that program, which no level drops.
void PassOnLog(absl::string_view line, const LogSource& source);

// The line of a message, with its newline.
std::string FormatLogLine(LogFormat format,
                          const LogSource& source,
                          int64_t step,
                          Severity severity,
                          absl::Time time,
                          absl::string_view message);

}  // namespace dapd
