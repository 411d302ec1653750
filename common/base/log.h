// The log: one line per message on stderr, as text
//   I 2026-01-31T12:00:00.123Z rollout] message
// (`trainer-2]` for a rank other than 0) or as a JSON object, whose fields
// stand in this order; unknown fields are left out:
//   {"time": "2026-01-31T12:00:00.123Z", "level": "info", "service": "trainer",
//    "run": "mine", "rank": 0, "step": 12, "message": "message"}
// Quoted text in a message is escaped (printable.h). In the text format further
// lines of a message begin with two spaces.
//
// These are functions, not macros, since c10 and newer versions of Abseil both
// define LOG. Thread-safe. A line is written with one write(2) if the kernel
// takes it whole; then no line of another process comes in between, neither in
// a file that both append to, nor, up to PIPE_BUF (4,096 bytes), in a pipe. A
// reader that does not read blocks nobody (error_output.h).
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

// The origin of a line, which every line of this process shows.
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

// Sets up the log. Call it before any thread starts.
void SetLog(LogSettings settings);

// Set only the name, or only the lowest level.
void SetLogName(const std::string& name);
void SetMinLogSeverity(Severity severity);

// Sets the optimizer step that later lines show. 0: none.
void SetLogStep(int64_t step);

// Returns whether the log is JSON. Nothing else, such as a progress bar, should
// then be written to stderr.
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

// Logs a line, without its newline, that another program of this run, `source`,
// has written. A line of a JSON log is passed on unchanged. Any other line (for
// example of a library, or of a program that crashes) becomes the message of a
// warning of that program, which no level drops.
void PassOnLog(absl::string_view line, const LogSource& source);

// Returns the line of a message, with its newline.
std::string FormatLogLine(LogFormat format,
                          const LogSource& source,
                          int64_t step,
                          Severity severity,
                          absl::Time time,
                          absl::string_view message);

}  // namespace dapd
