#include "services/trainer/record/recorded_steps.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "services/trainer/record/step_lines.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

absl::Status KeepDamaged(const std::string& path) {
  const std::string aside = absl::StrCat(path, ".damaged");
  std::error_code error;
  std::filesystem::copy_file(
      path, aside, std::filesystem::copy_options::overwrite_existing, error);
  if (error) {
    return FileError(absl::StrCat("copy ", path, " to"), aside, error.value());
  }
  LogWarning(absl::StrCat(path, " as it was is kept as ", aside));
  return absl::OkStatus();
}

}  // namespace

void AddSeconds(const Json& line, std::map<std::string, double>* sums) {
  for (const auto& [phase, seconds] : line.at("seconds").items()) {
    (*sums)[phase] += seconds.get<double>();
  }
}

absl::StatusOr<KeptLines> KeepLines(const std::string& path,
                                    int64_t last_step,
                                    RunHistory* history,
                                    ClipWatch* watch) {
  KeptLines kept;
  if (!FileExists(path)) return kept;
  ASSIGN_OR_RETURN(JsonLinesWriter writer, JsonLinesWriter::Open(path));
  ASSIGN_OR_RETURN(
      const int64_t num_damaged,
      ForEachStepLine(path,
                      [&](int64_t step, const Json& line) -> absl::Status {
                        if (step > last_step) return absl::OkStatus();
                        history->Add(line);
                        watch->Recall(line);
                        AddSeconds(line, &kept.seconds);
                        kept.last = line;
                        return writer.Append(line);
                      }));
  if (num_damaged > 0) RETURN_IF_ERROR(KeepDamaged(path));
  RETURN_IF_ERROR(writer.Commit());
  return kept;
}

}  // namespace dapd
