#include "common/hub/model_folder.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/hub/hub_cache.h"
#include "common/hub/hub_id.h"
#include "common/tensor/safetensors_folder.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr char kModelPrefix[] = "models--";
constexpr char kAdapterConfig[] = "adapter_config.json";

// Models that the shipped configurations name and programs of the repository
// write: the path, and the command that writes it.
struct MadeModel {
  absl::string_view path;
  absl::string_view command;
};
constexpr MadeModel kMadeModels[] = {
    {".deps/models/laboratory-large",
     "deploy/pretrain_laboratory_model.py --size large"},
    {".deps/models/SmolLM2-135M-Instruct", "deploy/fetch_demo_model.py"},
    {".deps/models/tiny-qwen3", "deploy/make_tiny_model.py"},
};

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// Returns what a message about the missing folder `path` ends with.
std::string HowToMake(absl::string_view path) {
  path = absl::StripSuffix(path, "/");
  for (const MadeModel& made : kMadeModels) {
    if (path == made.path ||
        absl::EndsWith(path, absl::StrCat("/", made.path))) {
      return absl::StrCat("; make it in the repository with: ",
                          ".deps/venv/bin/python ",
                          made.command);
    }
  }
  return ", and it cannot be an id on the Hugging Face hub, such as "
         "Qwen/Qwen3-4B or Qwen/Qwen3-4B@main";
}

// A failed mount leaves an empty folder.
bool IsEmptyFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::is_empty(path, error);
}

// Adds the weights of a snapshot: one file, or the shards of an index.
absl::Status AddWeightFiles(const HubId& id,
                            const HubSnapshot& snapshot,
                            std::set<std::string>* files) {
  const std::string index(kSafetensorsIndexFile);
  const std::string path = JoinPath(snapshot.folder, index);
  const auto has = [&](const std::string& file) {
    return Exists(JoinPath(snapshot.folder, file)) ||
           (snapshot.listed.has_value() && snapshot.listed->contains(file));
  };
  if (has(kSafetensorsSingleFile) || !has(index)) {
    files->insert(kSafetensorsSingleFile);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckFile(HubKind::kModel, id, snapshot, index));
  auto json = ReadFile(path, kMaxIndexBytes);
  if (!json.ok()) return WithExitCode(json.status(), ExitCode::kData);
  ASSIGN_OR_RETURN(const auto shards, ParseSafetensorsIndex(*json, path));
  for (const auto& [tensor, shard] : shards) files->insert(shard);
  return absl::OkStatus();
}

absl::Status CheckFiles(const HubId& id,
                        const HubSnapshot& snapshot,
                        const std::set<std::string>& files) {
  for (const std::string& file : files) {
    RETURN_IF_ERROR(CheckFile(HubKind::kModel, id, snapshot, file));
  }
  // Without the hub's list it is unknown which files the download still lacks,
  // for example generation_config.json.
  if (!snapshot.listed.has_value() && !snapshot.unfinished.empty()) {
    return HalfDownload(
        HubKind::kModel,
        id,
        absl::StrCat(
            snapshot.unfinished,
            " was not downloaded completely (remove it if nothing needs it)"));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const HubId& id, const HubSnapshot& snapshot) {
  std::set<std::string> files = {"config.json", "tokenizer.json"};
  RETURN_IF_ERROR(AddWeightFiles(id, snapshot, &files));
  if (snapshot.listed.has_value()) {
    for (const auto& [file, size] : *snapshot.listed) {
      if (!absl::StrContains(file, '/') &&
          (absl::EndsWith(file, ".json") || absl::EndsWith(file, ".jinja"))) {
        files.insert(file);
      }
    }
  }
  return CheckFiles(id, snapshot, files);
}

absl::Status CheckAdapter(const HubId& id, const HubSnapshot& snapshot) {
  return CheckFiles(
      id, snapshot, {kAdapterConfig, "adapter_model.safetensors"});
}

absl::StatusOr<std::string> FindFolder(
    const std::string& path,
    const std::string& what,
    const std::function<absl::Status(const HubId&, const HubSnapshot&)>&
        check) {
  if (IsEmptyFolder(path)) {
    return WithExitCode(absl::NotFoundError(absl::StrCat(
                            path,
                            " is an empty folder, with no ",
                            what,
                            " in it; mount the folder that contains one, or "
                            "give an id on the Hugging Face hub")),
                        ExitCode::kData);
  }
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) return path;
  // This user may not enter a parent folder, so it is unknown whether `path`
  // exists.
  if (error == std::errc::permission_denied) {
    return WithExitCode(FileError("look for", path, error.value()),
                        ExitCode::kData);
  }
  const std::optional<HubId> id = ParseHubId(path);
  if (!id.has_value()) {
    return WithExitCode(
        absl::NotFoundError(absl::StrCat(
            "there is no ", what, " folder ", path, HowToMake(path))),
        ExitCode::kData);
  }
  auto snapshot = FindSnapshot(HubKind::kModel, *id);
  if (absl::IsNotFound(snapshot.status())) {
    return WithExitCode(absl::NotFoundError(absl::StrCat(
                            "there is no ",
                            what,
                            " folder ",
                            path,
                            ", and ",
                            std::string(snapshot.status().message()))),
                        ExitCode::kData);
  }
  RETURN_IF_ERROR(snapshot.status());
  RETURN_IF_ERROR(check(*id, *snapshot));
  return snapshot->folder;
}

}  // namespace

absl::StatusOr<std::string> FindModelFolder(const std::string& path) {
  return FindFolder(path, "model", CheckModel);
}

absl::StatusOr<std::string> FindAdapterFolder(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string folder,
                   FindFolder(path, "adapter", CheckAdapter));
  const std::string within = JoinPath(folder, "adapter");
  if (!FileExists(JoinPath(folder, kAdapterConfig)) &&
      FileExists(JoinPath(within, kAdapterConfig))) {
    return DataError(absl::StrCat(folder,
                                  " is a run or a checkpoint, not an adapter; "
                                  "its adapter is ",
                                  within));
  }
  return folder;
}

std::string BaseModelName(const std::string& path) {
  if (!Exists(path)) return path;
  // Example: .../models--Qwen--Qwen3-4B/snapshots/<commit>
  const fs::path folder =
      fs::path(std::string(absl::StripSuffix(path, "/"))).lexically_normal();
  const std::string repository = folder.parent_path().parent_path().filename();
  if (folder.parent_path().filename() != "snapshots" ||
      !absl::StartsWith(repository, kModelPrefix)) {
    return ParseHubId(path).has_value() && absl::StrContains(path, '@')
               ? JoinPath(".", path)
               : path;
  }
  const std::string name = absl::StrReplaceAll(
      absl::StripPrefix(repository, kModelPrefix), {{"--", "/"}});
  const std::string id = absl::StrCat(name, "@", folder.filename().string());
  return ParseHubId(id).has_value() ? id : path;
}

absl::StatusOr<std::string> BaseModelName(const std::string& path,
                                          const std::string& name) {
  if (name.empty()) return BaseModelName(path);
  if (ParseHubId(name).has_value()) return name;
  return ConfigError(absl::StrCat("model.name: '",
                                  Printable(name),
                                  "' is not an id on the hub, such as "
                                  "Qwen/Qwen3-4B or Qwen/Qwen3-4B@main"));
}

}  // namespace dapd
