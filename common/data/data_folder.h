// Chooses the files of a data set's folder that are read: the files of one
// configuration and one split, as the library `datasets` finds them.
// docs/data.md says the rules.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

// Behind a path, as "#extended", "#extended:test" or "#:test". An empty name is
// not asked for.
struct DataChoice {
  std::string configuration;
  std::string split;

  bool IsEmpty() const { return configuration.empty() && split.empty(); }
};

// Chooses one of several splits if the path names none.
enum class SplitRule {
  kTrain,  // the split train
  kNamed,  // none: training problems must not pass for held-out ones
};

struct DataFolder {
  std::string path;  // for messages, and as the choice's beginning
  std::vector<std::string> files;  // all of DataFormat, from the folder, sorted
  // The text of a file of the folder, whatever its format; nothing if it is not
  // there.
  std::function<absl::StatusOr<std::optional<std::string>>(
      const std::string& file)>
      read;
};

// From the folder, in the order in which they are read, all of one readable
// format. In this order:
//   a folder of save_to_disk (dataset_dict.json, or state.json) has the files
//     that it lists
//   the configurations of .huggingface.yaml or README.md (data_card.h); of a
//     folder without any: the one called "default"
//   its splits by patterns or by names (data_splits.h)
// Logs the choice where there were several. An error (exit code of the data)
// names the configurations or the splits where the choice is not in them, or
// where one is needed.
absl::StatusOr<std::vector<std::string>> FilesOfFolder(const DataFolder& folder,
                                                       const DataChoice& choice,
                                                       SplitRule rule);

}  // namespace dapd
