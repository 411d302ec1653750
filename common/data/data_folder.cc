#include "common/data/data_folder.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/data/data_card.h"
#include "common/data/data_format.h"
#include "common/data/data_splits.h"
#include "common/data/saved_dataset.h"

namespace dapd {
namespace {

using Paths = std::vector<std::string>;

// Reads the configurations of the folder's card. .huggingface.yaml has
// precedence over README.md.
absl::StatusOr<std::vector<DataConfiguration>> ReadCard(
    const DataFolder& folder) {
  std::vector<DataConfiguration> configurations;
  ASSIGN_OR_RETURN(const auto standalone, folder.read(".huggingface.yaml"));
  if (standalone.has_value()) {
    ASSIGN_OR_RETURN(
        configurations,
        ParseDataCard(*standalone, JoinPath(folder.path, ".huggingface.yaml")));
  }
  if (!configurations.empty()) return configurations;
  ASSIGN_OR_RETURN(const auto readme, folder.read("README.md"));
  if (!readme.has_value()) return configurations;
  return ParseDataCard(CardHead(*readme), JoinPath(folder.path, "README.md"));
}

absl::StatusOr<std::vector<DataSplit>> SplitsOf(
    const DataFolder& folder, const DataConfiguration& configuration) {
  const std::string within = configuration.data_dir.empty()
                                 ? std::string()
                                 : configuration.data_dir + "/";
  Paths files;
  for (const std::string& file : folder.files) {
    if (absl::StartsWith(file, within)) {
      files.push_back(file.substr(within.size()));
    }
  }
  std::vector<DataSplit> splits;
  if (configuration.data_files.has_value()) {
    ASSIGN_OR_RETURN(splits,
                     SplitsByPatterns(*configuration.data_files, files));
  } else {
    ASSIGN_OR_RETURN(splits, SplitsByName(files));
  }
  for (DataSplit& split : splits) {
    for (std::string& file : split.files) file.insert(0, within);
  }
  return splits;
}

std::string NamesOf(const std::vector<DataSplit>& splits) {
  return absl::StrJoin(
      splits, ", ", [](std::string* out, const DataSplit& split) {
        absl::StrAppend(
            out,
            split.name,
            split.files.empty() ? "" : ": " + Printable(split.files.front()));
      });
}

absl::StatusOr<DataSplit> ChooseSplit(const std::string& where,
                                      const std::string& path,
                                      const std::vector<DataSplit>& splits,
                                      const std::string& asked,
                                      SplitRule rule) {
  if (asked.empty() && splits.size() == 1) return splits.front();
  const std::string wanted =
      asked.empty() && rule == SplitRule::kTrain ? kTrainSplit : asked;
  for (const DataSplit& split : splits) {
    if (split.name == wanted) return split;
  }
  if (!asked.empty()) {
    return DataError(absl::StrCat(where,
                                  " has no split '",
                                  Printable(asked),
                                  "'; available: ",
                                  NamesOf(splits)));
  }
  return DataError(absl::StrCat(where,
                                " holds several splits (",
                                NamesOf(splits),
                                "); choose one by its name, as in ",
                                path,
                                splits.back().name,
                                ", or files with a glob"));
}

absl::Status CheckReadOnce(const std::string& where, const DataSplit& split) {
  std::set<std::string> seen;
  for (const std::string& file : split.files) {
    if (seen.insert(file).second) continue;
    return DataError(absl::StrCat(where,
                                  ": two patterns of the split ",
                                  split.name,
                                  " have the file ",
                                  Printable(file),
                                  ", whose rows would be read twice; choose "
                                  "files with a glob"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Paths> FilesOfFolder(const DataFolder& folder,
                                    const DataChoice& choice,
                                    SplitRule rule) {
  ASSIGN_OR_RETURN(std::vector<DataSplit> splits, SplitsOfSaved(folder));
  DataConfiguration configuration = {.name = kDefaultConfiguration};
  std::vector<DataConfiguration> configurations = {configuration};
  const bool is_saved = !splits.empty();
  if (!is_saved) {
    ASSIGN_OR_RETURN(std::vector<DataConfiguration> of_card, ReadCard(folder));
    if (!of_card.empty()) configurations = std::move(of_card);
  }
  ASSIGN_OR_RETURN(
      configuration,
      ChooseConfiguration(configurations, choice.configuration, folder.path));
  const bool is_one_of_several = configurations.size() > 1;
  const std::string where =
      is_one_of_several ? absl::StrCat(folder.path, "#", configuration.name)
                        : folder.path;
  if (!is_saved) {
    auto found = SplitsOf(folder, configuration);
    if (!found.ok()) {
      return DataError(absl::StrCat(where, ": ", found.status().message()));
    }
    splits = *std::move(found);
  }
  if (splits.empty()) return FilesOfOneFormat(where, {});
  ASSIGN_OR_RETURN(
      const DataSplit split,
      ChooseSplit(where,
                  absl::StrCat(where, is_one_of_several ? ":" : "#:"),
                  splits,
                  choice.split,
                  rule));
  RETURN_IF_ERROR(CheckReadOnce(where, split));
  if (is_one_of_several || splits.size() > 1) {
    LogInfo(absl::StrCat(
        "data set ",
        folder.path,
        ": reading the split ",
        split.name,
        is_one_of_several
            ? absl::StrCat(" of the configuration ", configuration.name)
            : ""));
  }
  return FilesOfOneFormat(
      splits.size() > 1 ? absl::StrCat(where, ", split ", split.name) : where,
      split.files);
}

}  // namespace dapd
