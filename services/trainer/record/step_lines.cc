#include "services/trainer/record/step_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxLinesBytes = uint64_t{1} << 32;

using TakeStep = std::function<absl::Status(int64_t step, const Json& line)>;

// Returns false if the line is damaged.
absl::StatusOr<bool> Take(absl::string_view line, const TakeStep& take) try {
  const Json row = Json::parse(line);
  const auto step = JsonInteger(row.at("step"), 0);
  if (!step.ok() || !row.contains("seconds")) return false;
  RETURN_IF_ERROR(take(*step, row));
  return true;
} catch (const Json::exception& /*error*/) {
  return false;
}

}  // namespace

absl::StatusOr<int64_t> ForEachStepLine(
    const std::string& path,
    const std::function<absl::Status(int64_t step, const Json& line)>& take) {
  if (!FileExists(path)) return 0;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxLinesBytes));
  int64_t number = 0;
  int64_t first_damaged = 0;
  int64_t num_damaged = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    // A crash cut off a line without its end.
    if (line.empty() ||
        line.data() + line.size() == text.data() + text.size()) {
      continue;
    }
    ASSIGN_OR_RETURN(const bool is_taken, Take(line, take));
    if (is_taken) continue;
    if (num_damaged++ == 0) first_damaged = number;
  }
  if (num_damaged > 0) {
    LogWarning(absl::StrCat(
        path,
        ":",
        first_damaged,
        " is damaged, no line of a step, and is left out",
        num_damaged > 1 ? absl::StrCat(" (the first of ", num_damaged, ")")
                        : ""));
  }
  return num_damaged;
}

}  // namespace dapd
