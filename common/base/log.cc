#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/enum_names.h"
#include "common/base/error_output.h"
#include "common/base/json.h"
#include "common/base/printable.h"

namespace dapd {
namespace {

// These are set before any thread starts.
LogSource& Source() {
  static LogSource& source = *new LogSource();
  return source;
}

std::atomic<LogFormat> log_format{LogFormat::kText};
std::atomic<Severity> min_severity{Severity::kInfo};
std::atomic<int64_t> log_step{0};

std::string JsonLine(const LogSource& source,
                     int64_t step,
                     const char* level,
                     const std::string& time,
                     absl::string_view message) {
  nlohmann::ordered_json line = {
      {"time", time}, {"level", level}, {"service", source.service}};
  if (!source.run.empty()) line["run"] = source.run;
  if (source.rank >= 0) line["rank"] = source.rank;
  if (step > 0) line["step"] = step;
  line["message"] = PrintableLines(message);
  return absl::StrCat(
      line.dump(-1,
                ' ',
                /*ensure_ascii=*/false,
                nlohmann::ordered_json::error_handler_t::replace),
      "\n");
}

std::string DescribeDropped(int64_t number) {
  return FormatLogLine(
      log_format.load(),
      Source(),
      /*step=*/0,
      Severity::kWarning,
      absl::Now(),
      absl::StrCat(number,
                   " lines of this log are missing here: nobody read it, and "
                   "no more could be kept"));
}

void WriteLine(std::string line) {
  [[maybe_unused]] static const bool described =
      (DescribeDroppedLines(DescribeDropped), true);
  WriteErrorLine(std::move(line));
}

bool IsLogObject(absl::string_view line) {
  if (line.empty() || line.front() != '{') return false;
  const auto json = nlohmann::json::parse(
      line, /*callback=*/nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("time") && json.contains("message");
}

}  // namespace

void SetLog(LogSettings settings) {
  log_format = settings.format;
  min_severity = settings.min_severity;
  Source() = std::move(settings.source);
}

void SetLogName(const std::string& name) { Source().service = name; }

void SetMinLogSeverity(Severity severity) { min_severity = severity; }

void SetLogStep(int64_t step) { log_step = step; }

bool LogsJson() { return log_format.load() == LogFormat::kJson; }

std::string FormatLogLine(LogFormat format,
                          const LogSource& source,
                          int64_t step,
                          Severity severity,
                          absl::Time time,
                          absl::string_view message) {
  const std::string when =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  if (format == LogFormat::kJson) {
    return JsonLine(source, step, NameOf(severity), when, message);
  }
  return absl::StrCat(std::string(1, "IWE"[static_cast<size_t>(severity)]),
                      " ",
                      when,
                      " ",
                      source.service,
                      source.rank > 0 ? absl::StrCat("-", source.rank) : "",
                      "] ",
                      PrintableLines(message),
                      "\n");
}

void Log(Severity severity, const std::string& message) {
  if (severity < min_severity.load()) return;
  const LogFormat format = log_format.load();
  static const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  const std::string line = FormatLogLine(
      format, Source(), log_step.load(), severity, absl::Now(), message);
  // In the text format there may be a progress line of this process or of
  // another process.
  const bool erases = is_terminal && format == LogFormat::kText;
  WriteLine(absl::StrCat(erases ? "\r\x1b[K" : "", line));
}

void PassOnLog(absl::string_view line, const LogSource& source) {
  if (IsLogObject(line)) {
    WriteLine(absl::StrCat(line, "\n"));
    return;
  }
  if (line.empty()) return;
  WriteLine(FormatLogLine(log_format.load(),
                          source,
                          /*step=*/0,
                          Severity::kWarning,
                          absl::Now(),
                          line));
}

}  // namespace dapd
