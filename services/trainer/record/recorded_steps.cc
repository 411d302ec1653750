#include "services/trainer/record/recorded_steps.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxLinesBytes = uint64_t{1} << 32;

}  // namespace

void AddSeconds(const Json& line, std::map<std::string, double>* sums) {
  for (const auto& [phase, seconds] : line.at("seconds").items()) {
    (*sums)[phase] += seconds.get<double>();
  }
}

absl::Status ForEachStepLine(
    const std::string& path,
    const std::function<absl::Status(int64_t step, const Json& line)>&
        take) try {
  if (!FileExists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxLinesBytes));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    // A line without its end is one that a crash cut off.
    if (line.empty() ||
        line.data() + line.size() == text.data() + text.size()) {
      continue;
    }
    const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto step = row.is_object()
                          ? JsonInteger(row.value("step", Json()), 0)
                          : absl::InvalidArgumentError("not an object");
    if (!step.ok() || !row.contains("seconds")) {
      return absl::DataLossError(
          absl::StrCat(path, " has a line that is not a step: ", line));
    }
    RETURN_IF_ERROR(take(*step, row));
  }
  return absl::OkStatus();
} catch (const Json::exception& error) {
  return absl::DataLossError(
      absl::StrCat(path, " has a line that is not a step: ", error.what()));
}

absl::StatusOr<KeptLines> KeepLines(const std::string& path,
                                    int64_t last_step,
                                    RunHistory* history,
                                    ClipWatch* watch) {
  KeptLines kept;
  if (!FileExists(path)) return kept;
  ASSIGN_OR_RETURN(JsonLinesWriter writer, JsonLinesWriter::Open(path));
  RETURN_IF_ERROR(ForEachStepLine(
      path, [&](int64_t step, const Json& line) -> absl::Status {
        if (step > last_step) return absl::OkStatus();
        AddSeconds(line, &kept.seconds);
        RETURN_IF_ERROR(writer.Append(line));
        history->Add(line);
        watch->Recall(line);
        kept.last = line;
        return absl::OkStatus();
      }));
  RETURN_IF_ERROR(writer.Commit());
  return kept;
}

}  // namespace dapd
