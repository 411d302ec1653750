#include "common/model/weights/base_digest.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

absl::StatusOr<std::string> FileDigest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string block(kFileBlockBytes, '\0');
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
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListFolder(model_path));
  Sha256 all;
  for (const std::string& name : names) {
    const std::string extension = std::filesystem::path(name).extension();
    if (extension != ".safetensors" && extension != ".json" &&
        extension != ".jinja") {
      continue;
    }
    ASSIGN_OR_RETURN(const std::string digest,
                     FileDigest(JoinPath(model_path, name)));
    all.Update(absl::StrCat(name, "\n", digest, "\n"));
  }
  return all.HexDigest();
}

absl::StatusOr<std::string> TeacherDigest(const std::string& model_path,
                                          const std::string& adapter) {
  ASSIGN_OR_RETURN(const std::string model, BaseDigest(model_path));
  if (adapter.empty()) return model;
  ASSIGN_OR_RETURN(const std::string own, BaseDigest(adapter));
  return Sha256Hex(absl::StrCat(model, "\n", own, "\n"));
}

}  // namespace dapd
