// What a run left in its folder, as far as runs are compared by it: the merged
// configuration, the steps, the held-out evaluations. A run that is not done,
// or goes on meanwhile, counts as far as it is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/json.h"
#include "common/data/confidence_interval.h"

namespace dapd {

// One evaluation: every figure in its report that has an interval, by its place
// there ("accuracy", "unclipped_divergence/entangled_rollout").
struct HeldOutFigures {
  std::map<std::string, Interval> figures;
  std::string marker;  // of "marker_rate"; empty: none
  std::string digest;  // of what was measured; empty: an older run's
  int64_t problems = 0;
  int64_t samples = 0;
};

struct RunResults {
  std::string folder;
  std::string name;  // the folder's own
  bool finished = false;
  int64_t step = 0;   // the last one
  int64_t steps = 0;  // that it was to take
  // Of the last step; nothing if it is not finite.
  std::optional<double> loss;
  // Dotted key -> YAML text, out of config.yaml.
  std::map<std::string, std::string> settings;
  nlohmann::ordered_json history;  // as RunHistory::ToJson
  // Of evaluations that measured something else than the newest there is
  // nothing.
  HeldOutFigures before;  // empty without an evaluation
  HeldOutFigures after;
  // Both and those within the run, by the steps behind their policy.
  std::map<int64_t, HeldOutFigures> evaluations;
};

inline constexpr char kSeedKey[] = "run.seed";

// The run's value of a key; empty if it has none.
std::string SettingOf(const RunResults& run, const std::string& key);

// Damaged evaluations and lines of metrics.jsonl are left out, with a warning.
// Exit code kData, with the file's name, if `folder` holds no run or a file of
// it cannot be read.
absl::StatusOr<RunResults> ReadRunResults(const std::string& folder);

}  // namespace dapd
