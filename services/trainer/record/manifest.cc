#include "services/trainer/record/manifest.h"

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/list_folder.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kManifest[] = "manifest.json";
constexpr uint64_t kMaxCheckpointFileBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 24;

// Returns relative path -> {"bytes", "sha256"} of every file except the
// manifest.
absl::StatusOr<Json> DescribeFiles(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListFilesBelow(folder));
  Json files = Json::object();
  for (const std::string& name : names) {
    if (name == kManifest) continue;
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadFile(JoinPath(folder, name), kMaxCheckpointFileBytes));
    files[name] = {{"bytes", bytes.size()}, {"sha256", Sha256Hex(bytes)}};
  }
  return files;
}

// A file's name need not be UTF-8.
std::string ToText(const Json& files) {
  return Json{{"files", files}}.dump(
      2, ' ', false, Json::error_handler_t::replace);
}

absl::Status Damaged(const std::string& folder, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat("checkpoint ", folder, " is damaged: ", what));
}

}  // namespace

absl::Status WriteManifest(const std::string& folder) {
  ASSIGN_OR_RETURN(const Json files, DescribeFiles(folder));
  return WriteFileAtomically(JoinPath(folder, kManifest), ToText(files));
}

absl::Status VerifyManifest(const std::string& folder) {
  const std::string path = JoinPath(folder, kManifest);
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxManifestBytes));
  ASSIGN_OR_RETURN(const nlohmann::json manifest, ParseJson(text, path));
  ASSIGN_OR_RETURN(const Json found, DescribeFiles(folder));
  // The texts are compared, so exactly these files must exist with exactly
  // these bytes.
  if (text == ToText(found)) return absl::OkStatus();
  const auto files = manifest.find("files");
  if (files == manifest.end() || !files->is_object()) {
    return Damaged(folder, "its manifest names no files");
  }
  for (const auto& [name, described] : files->items()) {
    if (!found.contains(name)) return Damaged(folder, name + " is missing");
    if (nlohmann::json(found[name]) != described) {
      return Damaged(folder, name + " is not what was written");
    }
  }
  return Damaged(folder, "its manifest is not what was written");
}

}  // namespace dapd
