// RunResults: the parts of a run's folder that a comparison uses: the merged
// configuration, the steps, the held-out evaluations. An unfinished run counts
// as far as it got.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/json.h"
#include "common/data/confidence_interval.h"

namespace dapd {

// One evaluation: all figures in its report that have an interval, by their
// place in the report ("accuracy", "unclipped_divergence/entangled_rollout").
struct HeldOutFigures {
  std::map<std::string, Interval> figures;
  std::string marker;  // of its share; empty: none
  std::string digest;  // held_out_digest; empty: an older run
  int64_t problems = 0;
  int64_t samples = 0;
};

struct RunResults {
  std::string folder;
  std::string name;  // of the folder
  bool finished = false;
  int64_t step = 0;   // the last one
  int64_t steps = 0;  // to take
  // The loss of the last step; nothing if it is not finite.
  std::optional<double> loss;
  // Dotted key -> YAML text, out of config.yaml.
  std::map<std::string, std::string> settings;
  nlohmann::ordered_json history;  // as RunHistory::ToJson
  // Evaluations with another held-out digest than the newest evaluation are
  // left out.
  HeldOutFigures before;  // empty without an evaluation
  HeldOutFigures after;
  // All evaluations, by the steps of their policies.
  std::map<int64_t, HeldOutFigures> evaluations;
};

inline constexpr char kSeedKey[] = "run.seed";

// Returns the run's value of a key; empty if it has none.
std::string SettingOf(const RunResults& run, const std::string& key);

// Reads a run. Damaged evaluations and lines of metrics.jsonl are left out,
// with a warning. Fails with exit code kData, with the file's name, if `folder`
// holds no run or one of its files cannot be read.
absl::StatusOr<RunResults> ReadRunResults(const std::string& folder);

}  // namespace dapd
