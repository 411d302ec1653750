#include "common/data/saved_dataset.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr char kState[] = "state.json";
constexpr char kInfo[] = "dataset_info.json";
constexpr char kSplits[] = "dataset_dict.json";

// Returns whether `value` is a name that cannot lead out of the folder.
bool IsPlainName(const nlohmann::json& value) {
  if (!value.is_string()) return false;
  const auto& name = value.get_ref<const std::string&>();
  return !name.empty() && name != "." && name != ".." &&
         !absl::StrContains(name, '/');
}

// Returns the files of the state.json in `subfolder`, which is empty or ends in
// '/'.
absl::StatusOr<DataSplit> ReadState(const DataFolder& folder,
                                    const std::string& subfolder,
                                    const std::string& split,
                                    const std::string& text) {
  const std::string where =
      JoinPath(folder.path, absl::StrCat(subfolder, kState));
  ASSIGN_OR_RETURN(const nlohmann::json state, ParseJson(text, where));
  const auto files =
      state.is_object() ? state.find("_data_files") : state.end();
  if (!state.is_object() || files == state.end() || !files->is_array()) {
    return DataError(absl::StrCat(where, " has no list _data_files"));
  }
  // Old versions of `datasets` saved shuffled or selected data with indices.
  const auto indices = state.find("_indices_data_files");
  if (indices != state.end() && !indices->is_null() && !indices->empty()) {
    return DataError(absl::StrCat(
        where,
        " lists rows by _indices_data_files, which is not read; load it and "
        "save it again with a newer version of datasets"));
  }
  DataSplit saved = {.name = split};
  for (const nlohmann::json& file : *files) {
    if (!file.is_object() || !file.contains("filename") ||
        !IsPlainName(file["filename"])) {
      return DataError(absl::StrCat(
          where,
          ": _data_files has an entry that is not a file in the same folder"));
    }
    const std::string path =
        subfolder + file["filename"].get_ref<const std::string&>();
    if (!std::binary_search(folder.files.begin(), folder.files.end(), path)) {
      return DataError(absl::StrCat(
          where, " names ", Printable(path), ", which is not there"));
    }
    saved.files.push_back(path);
  }
  return saved;
}

}  // namespace

absl::StatusOr<std::vector<DataSplit>> SplitsOfSaved(const DataFolder& folder) {
  std::vector<DataSplit> splits;
  ASSIGN_OR_RETURN(const auto state, folder.read(kState));
  ASSIGN_OR_RETURN(const auto info, folder.read(kInfo));
  if (state.has_value() && info.has_value()) {
    ASSIGN_OR_RETURN(splits.emplace_back(),
                     ReadState(folder, "", kTrainSplit, *state));
    return splits;
  }
  ASSIGN_OR_RETURN(const auto list, folder.read(kSplits));
  if (!list.has_value()) return splits;
  const std::string where = JoinPath(folder.path, kSplits);
  ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(*list, where));
  if (!parsed.is_object() || !parsed.contains("splits") ||
      !parsed["splits"].is_array()) {
    return DataError(absl::StrCat(where, " has no list of splits"));
  }
  for (const nlohmann::json& name : parsed["splits"]) {
    if (!IsPlainName(name)) {
      return DataError(absl::StrCat(
          where, " lists an entry that is not a folder beside it"));
    }
    const auto& split = name.get_ref<const std::string&>();
    ASSIGN_OR_RETURN(const auto text,
                     folder.read(absl::StrCat(split, "/", kState)));
    if (!text.has_value()) {
      return DataError(absl::StrCat(where,
                                    " lists the split ",
                                    Printable(split),
                                    ", which has no ",
                                    kState));
    }
    ASSIGN_OR_RETURN(splits.emplace_back(),
                     ReadState(folder, split + "/", split, *text));
  }
  return splits;
}

}  // namespace dapd
