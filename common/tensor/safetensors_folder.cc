#include "common/tensor/safetensors_folder.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/list_folder.h"
#include "common/base/safe_name.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxIndexBytes = 64 << 20;

// Reports all missing shards at once: a download may have been broken off.
absl::Status CheckShards(const std::string& index_path,
                         const std::string& folder,
                         const std::map<std::string, std::string>& shards) {
  std::set<std::string> all;
  std::set<std::string> missing;
  for (const auto& [name, shard] : shards) {
    all.insert(shard);
    // A link to a missing file counts as missing.
    std::error_code error;
    const auto status = std::filesystem::status(JoinPath(folder, shard), error);
    if (status.type() == std::filesystem::file_type::not_found) {
      missing.insert(shard);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return DataError(
      absl::StrCat(index_path,
                   " lists ",
                   all.size(),
                   all.size() == 1 ? " file, of which " : " files, of which ",
                   missing.size(),
                   missing.size() == 1 ? " is" : " are",
                   " not there: ",
                   absl::StrJoin(missing, ", "),
                   "; download the model again, and completely"));
}

absl::Status NoWeights(const std::string& folder) {
  std::string way_out =
      "transformers' save_pretrained converts weights that have another form, "
      "such as pytorch_model.bin";
  if (const auto names = ListFolder(folder); names.ok()) {
    for (const std::string& name : *names) {
      if (!absl::EndsWith(name, ".safetensors")) continue;
      way_out = absl::StrCat(
          "it has ", name, ", whose index is missing: download that as well");
      break;
    }
  }
  return WithExitCode(absl::NotFoundError(absl::StrCat(folder,
                                                       " has neither ",
                                                       kSafetensorsSingleFile,
                                                       " nor ",
                                                       kSafetensorsIndexFile,
                                                       "; ",
                                                       way_out)),
                      ExitCode::kData);
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(
    absl::string_view json, const std::string& where) {
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(json, where));
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object()) {
    return DataError(absl::StrCat(where, " has no weight_map"));
  }
  std::map<std::string, std::string> shards;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !IsSafeName(file.get<std::string>())) {
      return DataError(absl::StrCat(where,
                                    ": the shard of '",
                                    name,
                                    "' is ",
                                    file.dump(),
                                    ", not a plain file name"));
    }
    shards[name] = file.get<std::string>();
  }
  return shards;
}

absl::StatusOr<SafetensorsFolder> SafetensorsFolder::Open(
    const std::string& folder) {
  SafetensorsFolder opened;
  const std::string index_path = JoinPath(folder, kSafetensorsIndexFile);
  const std::string single_path = JoinPath(folder, kSafetensorsSingleFile);
  if (FileExists(single_path)) {
    RETURN_IF_ERROR(opened.OpenSingle(single_path));
  } else if (FileExists(index_path)) {
    RETURN_IF_ERROR(opened.OpenShards(index_path));
  } else {
    return NoWeights(folder);
  }
  return opened;
}

absl::Status SafetensorsFolder::OpenSingle(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const auto& [name, entry] : file.entries()) paths_[name] = path;
  files_.emplace(path, std::move(file));
  return absl::OkStatus();
}

absl::Status SafetensorsFolder::OpenShards(const std::string& index_path) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadFile(index_path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const auto shards, ParseSafetensorsIndex(bytes, index_path));
  const std::string folder = std::filesystem::path(index_path).parent_path();
  RETURN_IF_ERROR(CheckShards(index_path, folder, shards));
  for (const auto& [name, shard] : shards) {
    const std::string path = JoinPath(folder, shard);
    paths_[name] = path;
    if (!files_.contains(path)) {
      ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
      files_.emplace(path, std::move(file));
    }
    if (!files_.at(path).entries().contains(name)) {
      return DataError(absl::StrCat(index_path,
                                    " places '",
                                    name,
                                    "' in ",
                                    path,
                                    ", which does not have it"));
    }
  }
  for (const auto& [path, file] : files_) {
    for (const auto& [name, entry] : file.entries()) {
      const auto listed = paths_.find(name);
      if (listed == paths_.end() || listed->second != path) {
        return DataError(absl::StrCat(
            path,
            " holds '",
            name,
            "', which the index ",
            listed == paths_.end() ? "does not list" : "places elsewhere"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace dapd
