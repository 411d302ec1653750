// The output of `dapd runs list`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/json.h"
#include "services/trainer/record/run_overview.h"

namespace dapd {

// A run, or the reason why its folder cannot be read.
struct ListedRun {
  std::string folder;
  absl::StatusOr<RunOverview> overview;
};

// Returns the runs directly in `folder` and in its folders (the runs of a
// sweep), or `folder` itself if it is a run; sorted by name. A folder is a run
// if it has a config.yaml, a metrics.jsonl, an outcome.json or a trainer's
// lock. Links are not followed. Returns NOT_FOUND, exit code kData, without the
// folder.
absl::StatusOr<std::vector<ListedRun>> ListRuns(const std::string& folder);

// Returns a heading and a line for each run; ages are relative to `now`. Ends
// with a newline.
std::string RunsText(const std::vector<ListedRun>& runs,
                     const std::string& folder,
                     absl::Time now);

// Returns [{"name", "folder", "state", "step", "steps", "loss",
// "accuracy_before", "accuracy_after", "last_written", "adapter_digest",
// "message"}], or {"name", "folder", "state": "damaged", "message"}; accuracies
// as {"mean", "low", "high"}; null for missing values. Times are RFC 3339, UTC.
nlohmann::ordered_json RunsJson(const std::vector<ListedRun>& runs,
                                const std::string& folder);

}  // namespace dapd
