#include "common/data/sample_rows.h"

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

absl::StatusOr<Sample> ParseSample(const nlohmann::json& row,
                                   const std::string& where,
                                   int64_t vocab_size) {
  Sample sample;
  try {
    const nlohmann::json& id = row.at("id");
    sample.id = id.is_string() ? id.get<std::string>() : id.dump();
    sample.problem = row.at("problem").get<std::string>();
    sample.reference = row.at("reference").get<std::string>();
    auto ids = JsonTokenIds(row.at("rollout_ids"), "rollout_ids", vocab_size);
    if (!ids.ok()) {
      return DataError(absl::StrCat(where, ": ", ids.status().message()));
    }
    sample.rollout_ids = *std::move(ids);
  } catch (const nlohmann::json::exception& error) {
    return DataError(absl::StrCat(
        where,
        ": a sample needs id, problem, reference and rollout_ids: ",
        error.what()));
  }
  return sample;
}

}  // namespace

absl::StatusOr<std::vector<Sample>> ReadSamples(const std::string& path,
                                                int64_t vocab_size) {
  std::vector<Sample> samples;
  RETURN_IF_ERROR(ForEachJsonLine(
      path, [&](const nlohmann::json& row, int line) -> absl::Status {
        ASSIGN_OR_RETURN(
            Sample sample,
            ParseSample(row, absl::StrCat(path, ":", line), vocab_size));
        samples.push_back(std::move(sample));
        return absl::OkStatus();
      }));
  if (samples.empty()) {
    return DataError(absl::StrCat(path, " holds no sample"));
  }
  return samples;
}

absl::StatusOr<Views> BuildViewsOf(const ViewBuilder& builder,
                                   const Sample& sample) {
  auto views = builder.Build(sample);
  if (views.ok()) return views;
  return DataError(absl::StrCat(
      "sample '", sample.id, "': ", std::string(views.status().message())));
}

}  // namespace dapd
