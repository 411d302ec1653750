#include "common/model/weights/base_digest.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr size_t kBlockBytes = 1 << 20;

absl::StatusOr<std::string> FileDigest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string block(kBlockBytes, '\0');
  Sha256 sha;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    sha.Update({block.data(), static_cast<size_t>(file.gcount())});
  }
  if (!file.eof()) return absl::NotFoundError("cannot read " + path);
  return sha.HexDigest();
}

}  // namespace

absl::StatusOr<std::string> BaseDigest(const std::string& model_path) {
  std::map<std::string, std::string> paths;  // by name
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(model_path, error)) {
    const std::string extension = entry.path().extension();
    if (extension == ".safetensors" || extension == ".json" ||
        extension == ".jinja") {
      paths[entry.path().filename()] = entry.path();
    }
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot list ", model_path, ": ", error.message()));
  }
  Sha256 all;
  for (const auto& [name, path] : paths) {
    ASSIGN_OR_RETURN(const std::string digest, FileDigest(path));
    all.Update(absl::StrCat(name, "\n", digest, "\n"));
  }
  return all.HexDigest();
}

}  // namespace dapd
