// One line a message on stderr:  I 2026-01-31T12:00:00.123Z rollout] message
// What a message quotes is escaped (printable.h); its own further lines begin
// with two spaces.
// A function, not a macro: c10 and newer Abseil both define LOG.
// Thread-safe: a line is written with one write(2).
#pragma once

#include <string>

namespace dapd {

enum class Severity { kInfo, kWarning, kError };

// The name shown in every line of this process, such as "rollout". Set once,
// before any thread starts.
void SetLogName(const std::string& name);

// Messages below this level are dropped; kInfo by default.
void SetMinLogSeverity(Severity severity);

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

}  // namespace dapd
