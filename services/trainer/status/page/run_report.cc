#include "services/trainer/status/page/run_report.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/version.h"
#include "common/config/config_keys.h"
#include "common/rpc/status_json.h"
#include "services/trainer/status/page/page.h"
#include "services/trainer/status/status_message.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Returns [{"key", "value", "origin"}] of every key.
Json ConfigJson(const LoadedConfig& loaded) {
  Config config = loaded.config;
  Json rows = Json::array();
  for (const ConfigKey& key : ConfigKeys(config)) {
    const auto origin = loaded.origins.find(key.name);
    rows.push_back(
        {{"key", key.name},
         {"value", FormatValue(key)},
         {"origin", origin == loaded.origins.end() ? "" : origin->second}});
  }
  return rows;
}

}  // namespace

absl::Status WriteReport(const std::string& folder,
                         const LoadedConfig& loaded,
                         const TrainerStatus& status,
                         const RunHistory& history,
                         const AnswersToShow& answers,
                         const absl::Status& outcome) {
  const Json data = {
      {"status", StatusJson(StatusMessage(status))},
      {"history", history.ToJson()},
      {"answers", ToJson(answers)},
      {"outcome", outcome.ok() ? "" : PrintableLines(outcome.message())},
      {"stopped", absl::IsCancelled(outcome)},
      {"written",
       absl::FormatTime(
           "%Y-%m-%d %H:%M:%S UTC", absl::Now(), absl::UTCTimeZone())},
      {"version", Version()},
      {"config", ConfigJson(loaded)}};
  return WriteFileAtomically(JoinPath(folder, "report.html"), ReportHtml(data));
}

}  // namespace dapd
