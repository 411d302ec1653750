// Reads the configurations of a data set from the YAML at the head of its
// README.md, in the form that the library `datasets` reads:
//
//   ---
//   configs:
//   - config_name: default
//     data_files: data/*                     one pattern, or a list of them
//   - config_name: extended
//     data_dir: more                         patterns start from here
//     default: true
//     data_files:
//     - split: train
//       path: [extended/a-*, extended/b-*]   one pattern, or a list of them
//   ---
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Names the files of a split, in order, by patterns (file_pattern.h).
struct SplitPatterns {
  std::string split;
  std::vector<std::string> patterns;
};

struct DataConfiguration {
  std::string name;
  bool is_default = false;
  std::string data_dir;  // normalized, relative to the data set's folder; may
                         // be empty
  // If unset, the names of the files decide (data_splits.h).
  std::optional<std::vector<SplitPatterns>> data_files;
};

// Returns the YAML between the two lines "---" at the head of a README.md;
// empty if there is none.
absl::string_view CardHead(absl::string_view readme);

// Returns the configurations in the order of the card; empty if the card has no
// `configs`. An error (exit code kData) begins with `where`. It names what
// `datasets` would refuse, or a setting such as `field` with which `datasets`
// would read other rows.
absl::StatusOr<std::vector<DataConfiguration>> ParseDataCard(
    absl::string_view yaml, const std::string& where);

// Returns the configuration called `name`. An empty name stands for the default
// configuration: the only configuration, or the configuration that is called
// "default" or has `default: true`. An error names the available configurations
// and shows how to choose one of them behind `path`, the path of the data set.
absl::StatusOr<DataConfiguration> ChooseConfiguration(
    const std::vector<DataConfiguration>& configurations,
    const std::string& name,
    const std::string& path);

}  // namespace dapd
