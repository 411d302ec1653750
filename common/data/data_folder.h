// Chooses the files of a data set's folder that are read: the files of one
// configuration and one split, as the library `datasets` finds them.
// docs/data.md has the rules.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

// Holds the choice at the end of a path, such as "#extended", "#extended:test"
// or "#:test". An empty name means that nothing was chosen.
struct DataChoice {
  std::string configuration;
  std::string split;

  bool IsEmpty() const { return configuration.empty() && split.empty(); }
};

// Chooses one of several splits if the path names none.
enum class SplitRule {
  kTrain,  // the split train
  kNamed,  // no split: training problems must not pass for held-out problems
};

struct DataFolder {
  std::string path;  // used in messages and in the examples of choices
  std::vector<std::string> files;  // relative to the folder, sorted; none has
                                   // DataFormat::kNone
  // Returns the text of a file of the folder, whatever its format; nothing if
  // the file does not exist.
  std::function<absl::StatusOr<std::optional<std::string>>(
      const std::string& file)>
      read;
};

// Returns paths relative to the folder, in the order in which they are read;
// all have the same readable format. The function chooses in this order:
// * A folder that save_to_disk wrote (dataset_dict.json, or state.json) has the
//   files that these lists name.
// * The configuration comes from .huggingface.yaml or README.md (data_card.h).
//   A folder without configurations has one configuration, "default".
// * The split comes from patterns or from the names of files (data_splits.h).
// Logs the choice if there were several possibilities. An error (exit code
// kData) names the configurations or the splits if the choice is not one of
// them, or if a choice is needed.
absl::StatusOr<std::vector<std::string>> FilesOfFolder(const DataFolder& folder,
                                                       const DataChoice& choice,
                                                       SplitRule rule);

}  // namespace dapd
