#include "services/cli/runs_text.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "services/cli/terminal/text_table.h"
#include "services/trainer/record/run_name.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kDigestLetters = 12;

bool IsRun(const fs::path& folder) {
  std::error_code error;
  return std::ranges::any_of(
      std::array{"config.yaml", "metrics.jsonl", "outcome.json", ".lock"},
      [&](const char* name) { return fs::exists(folder / name, error); });
}

absl::Status Collect(const fs::path& folder,
                     int depth,
                     std::vector<std::string>* folders) {
  if (IsRun(folder)) {
    folders->push_back(folder);
    return absl::OkStatus();
  }
  if (depth == 0) return absl::OkStatus();
  const auto names = ListFolder(folder);
  if (!names.ok()) return WithExitCode(names.status(), ExitCode::kData);
  for (const std::string& name : *names) {
    const fs::path path = folder / name;
    std::error_code ignored;
    if (fs::is_symlink(path, ignored) || !fs::is_directory(path, ignored)) {
      continue;
    }
    const absl::Status listed = Collect(path, depth - 1, folders);
    // A volume's lost+found belongs to root, and a folder may be removed
    // meanwhile: the others are listed all the same.
    if (absl::IsPermissionDenied(listed)) {
      LogWarning(absl::StrCat("left out: ", listed.message()));
    } else if (!absl::IsNotFound(listed)) {
      RETURN_IF_ERROR(listed);
    }
  }
  return absl::OkStatus();
}

// Returns the path of a run relative to `folder`.
std::string NameIn(const std::string& run, const std::string& folder) {
  const fs::path name = fs::path(run).lexically_relative(folder);
  if (!name.empty() && name != ".") return name.string();
  return RunName(run);
}

std::string AgeText(absl::Duration age) {
  if (age < absl::ZeroDuration()) return "0s";
  if (age < absl::Minutes(2)) {
    return absl::StrCat(absl::ToInt64Seconds(age), "s");
  }
  if (age < absl::Hours(2)) {
    return absl::StrCat(absl::ToInt64Minutes(age), "min");
  }
  if (age < absl::Hours(48)) return absl::StrCat(absl::ToInt64Hours(age), "h");
  return absl::StrCat(absl::ToInt64Hours(age) / 24, "d");
}

std::string AccuracyText(const std::optional<EvaluationReport>& report) {
  if (!report.has_value() || !report->accuracy.has_value()) return "-";
  return absl::StrFormat("%.1f%%", 100 * report->accuracy->mean);
}

Cells RowOf(const RunOverview& run, const std::string& name, absl::Time now) {
  return {name,
          NameOf(run.state),
          run.steps > 0 ? absl::StrCat(run.step, " of ", run.steps) : "-",
          run.loss.has_value() ? absl::StrFormat("%.4g", *run.loss) : "-",
          AccuracyText(run.before),
          AccuracyText(run.after),
          absl::StrCat(AgeText(now - run.last_written), " ago"),
          run.adapter_digest.empty()
              ? "-"
              : Printable(run.adapter_digest.substr(0, kDigestLetters))};
}

// Returns the reason if the run's state needs attention.
std::string NoteOf(const RunOverview& run) {
  if (run.state == RunState::kFailed) return run.outcome->message;
  if (run.state == RunState::kPaused) {
    return "its disk takes no more; it goes on once there is room "
           "(checkpoint.on_write_error: pause)";
  }
  return "";
}

Json AccuracyJson(const std::optional<EvaluationReport>& report) {
  return report.has_value() && report->accuracy.has_value()
             ? ToJson(*report->accuracy)
             : Json();
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<std::vector<ListedRun>> ListRuns(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    RETURN_IF_ERROR(CheckMayLookFor(folder, error));
    return WithExitCode(
        absl::NotFoundError(absl::StrCat(folder, " is not a folder")),
        ExitCode::kData);
  }
  std::vector<std::string> folders;
  RETURN_IF_ERROR(Collect(folder, /*depth=*/2, &folders));
  std::sort(folders.begin(), folders.end());
  std::vector<ListedRun> runs;
  for (const std::string& run : folders) {
    runs.push_back({run, ReadRunOverview(run)});
  }
  return runs;
}

std::string RunsText(const std::vector<ListedRun>& runs,
                     const std::string& folder,
                     absl::Time now) {
  std::vector<Cells> rows = {{"run",
                              "state",
                              "step",
                              "loss",
                              "before",
                              "after",
                              "written",
                              "adapter"}};
  // The lines below each row, unless empty.
  std::vector<std::string> notes = {""};
  for (const ListedRun& run : runs) {
    const std::string name = Printable(NameIn(run.folder, folder));
    if (!run.overview.ok()) {
      rows.push_back({name, "damaged"});
      notes.push_back(Printable(run.overview.status().message()));
      continue;
    }
    rows.push_back(RowOf(*run.overview, name, now));
    notes.push_back(Printable(NoteOf(*run.overview)));
  }
  std::string text;
  const std::vector<std::string> lines = AlignColumns(rows);
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, lines[i], "\n");
    if (!notes[i].empty()) absl::StrAppend(&text, "    ", notes[i], "\n");
  }
  return text;
}

Json RunsJson(const std::vector<ListedRun>& runs, const std::string& folder) {
  Json rows = Json::array();
  for (const ListedRun& run : runs) {
    const std::string name = NameIn(run.folder, folder);
    if (!run.overview.ok()) {
      rows.push_back(
          {{"name", name},
           {"folder", run.folder},
           {"state", "damaged"},
           {"message", std::string(run.overview.status().message())}});
      continue;
    }
    const RunOverview& seen = *run.overview;
    const std::string note = NoteOf(seen);
    rows.push_back(
        {{"name", name},
         {"folder", run.folder},
         {"state", NameOf(seen.state)},
         {"step", seen.step},
         {"steps", seen.steps > 0 ? Json(seen.steps) : Json()},
         {"loss", seen.loss.has_value() ? Json(*seen.loss) : Json()},
         {"accuracy_before", AccuracyJson(seen.before)},
         {"accuracy_after", AccuracyJson(seen.after)},
         {"last_written", TimeText(seen.last_written)},
         {"adapter_digest",
          seen.adapter_digest.empty() ? Json() : Json(seen.adapter_digest)},
         {"message", note.empty() ? Json() : Json(note)}});
  }
  return rows;
}

}  // namespace dapd
