#include "services/trainer/record/run_outcome.h"

#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/run_folder.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxOutcomeBytes = 1 << 20;
constexpr size_t kMaxMessageBytes = 4096;

std::string OutcomePathIn(const std::string& folder) {
  return JoinPath(folder, "outcome.json");
}

bool IsState(const std::string& state) {
  return state == "finished" || state == "failed" || state == "stopped";
}

std::string ShortenMessage(const std::string& text) {
  if (text.size() <= kMaxMessageBytes) return text;
  return absl::StrCat(Utf8Head(text, kMaxMessageBytes), " ...");
}

absl::StatusOr<bool> TryWriteUnlessHeld(const std::string& folder,
                                        const RunOutcome& outcome) {
  ASSIGN_OR_RETURN(const bool is_held, IsHeld(folder));
  if (is_held) return false;
  RETURN_IF_ERROR(WriteOutcome(folder, outcome));
  return true;
}

// Returns whether it wrote: false if another process holds the run, or if
// writing fails, which is logged.
bool WriteUnlessHeld(const std::string& folder, const RunOutcome& outcome) {
  const auto written = TryWriteUnlessHeld(folder, outcome);
  if (written.ok()) return *written;
  LogWarning(std::string(written.status().message()));
  return false;
}

}  // namespace

RunOutcome OutcomeOf(const absl::Status& status) {
  RunOutcome outcome{.state = "finished", .time = absl::Now()};
  if (status.ok()) return outcome;
  const ExitCode code = ExitCodeOf(status);
  outcome.state = code == ExitCode::kInterrupted ? "stopped" : "failed";
  outcome.exit_code = static_cast<int64_t>(code);
  outcome.message = ShortenMessage(PrintableLines(status.message()));
  return outcome;
}

absl::Status WriteOutcome(const std::string& folder,
                          const RunOutcome& outcome) {
  return WriteFileAtomically(OutcomePathIn(folder),
                             Json{{"state", outcome.state},
                                  {"exit_code", outcome.exit_code},
                                  {"message", outcome.message},
                                  {"time", absl::ToUnixSeconds(outcome.time)}}
                                     .dump(2) +
                                 "\n");
}

void ForgetOutcome(const std::string& folder) {
  std::remove(OutcomePathIn(folder).c_str());
}

void CorrectOutcome(const std::string& folder,
                    const absl::Status& status,
                    absl::Time start) {
  const RunOutcome seen = OutcomeOf(status);
  if (seen.state != "failed" || !FileExists(folder)) return;
  if (ReadOutcome(folder).has_value()) {
    const auto recorded = ReadOutcomeSince(folder, start);
    if (!recorded.has_value() || recorded->state == "finished" ||
        (recorded->exit_code == seen.exit_code &&
         AddsNothing(seen, *recorded))) {
      return;
    }
  }
  WriteUnlessHeld(folder, seen);
}

bool AddsNothing(const RunOutcome& seen, const RunOutcome& word) {
  return seen.state == word.state &&
         (seen.state == "stopped" ||
          !absl::StrContains(seen.message, word.message));
}

bool RecordFinished(const std::string& folder) {
  const auto recorded = ReadOutcome(folder);
  if (recorded.has_value() && recorded->state == "finished") return false;
  return WriteUnlessHeld(folder, OutcomeOf(absl::OkStatus()));
}

std::optional<RunOutcome> ReadOutcome(const std::string& folder) try {
  const std::string path = OutcomePathIn(folder);
  const auto text = ReadFile(path, kMaxOutcomeBytes);
  if (!text.ok()) return std::nullopt;
  const auto json = ParseJson(*text, path);
  if (!json.ok()) return std::nullopt;
  const RunOutcome outcome{
      .state = json->at("state").get<std::string>(),
      .exit_code = json->at("exit_code").get<int64_t>(),
      .message = json->at("message").get<std::string>(),
      .time = absl::FromUnixSeconds(json->at("time").get<int64_t>())};
  if (!IsState(outcome.state)) return std::nullopt;
  return outcome;
} catch (const nlohmann::json::exception& /*error*/) {
  return std::nullopt;
}

std::optional<RunOutcome> ReadOutcomeSince(const std::string& folder,
                                           absl::Time start) {
  auto recorded = ReadOutcome(folder);
  // Recorded times are whole seconds.
  if (recorded.has_value() && recorded->time + absl::Seconds(1) < start) {
    return std::nullopt;
  }
  return recorded;
}

}  // namespace dapd
