// The configurations of a data set, as the YAML at the head of its README.md
// describes them, in the form that the library `datasets` reads:
//
//   ---
//   configs:
//   - config_name: default
//     data_files: data/*                       one pattern, or a list of them
//   - config_name: extended
//     data_dir: more                           patterns count from here
//     default: true
//     data_files:
//     - split: train
//       path: [extended/a-*, extended/b-*]     one pattern, or a list of them
//   ---
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// The files of a split, in their order, as patterns (file_pattern.h).
struct SplitPatterns {
  std::string split;
  std::vector<std::string> patterns;
};

struct DataConfiguration {
  std::string name;
  bool is_default = false;
  std::string data_dir;  // normalized, from the data set's folder; may be empty
  // Nothing: by the names of the files (data_splits.h).
  std::optional<std::vector<SplitPatterns>> data_files;
};

// The YAML between the two lines "---" at the head of a README.md; empty if
// there is none.
absl::string_view CardHead(absl::string_view readme);

// In the order of the card; empty where it has no `configs`. An error (exit
// code of the data) leads with `where` and says what `datasets` would not take,
// or what it would take and would make other rows, such as `field`.
absl::StatusOr<std::vector<DataConfiguration>> ParseDataCard(
    absl::string_view yaml, const std::string& where);

// The configuration called `name`; for an empty name the default one: the only
// one, or the one called "default" or marked `default: true`. An error names
// the others and, for the choice, `path`, which the configurations are of.
absl::StatusOr<DataConfiguration> ChooseConfiguration(
    const std::vector<DataConfiguration>& configurations,
    const std::string& name,
    const std::string& path);

}  // namespace dapd
