// Reads the safetensors of a model folder: model.safetensors, or the shards
// that model.safetensors.index.json lists. If both exist the single file is
// read, as in transformers, which leaves the index of shards behind when it
// replaces them.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "common/tensor/host_tensor.h"
#include "common/tensor/safetensors.h"

namespace dapd {

inline constexpr char kSafetensorsSingleFile[] = "model.safetensors";
inline constexpr char kSafetensorsIndexFile[] = "model.safetensors.index.json";

// Holds the open files, with a map of the file that holds each tensor.
// Thread-safe.
class SafetensorsFolder {
 public:
  // Refuses an index that disagrees with its shards, in either direction, and a
  // shard whose name is not a plain file name.
  static absl::StatusOr<SafetensorsFolder> Open(const std::string& folder);

  // Maps each tensor to the file that holds it.
  const std::map<std::string, std::string>& paths() const { return paths_; }
  // `name` must be in paths().
  const SafetensorsEntry& entry(const std::string& name) const {
    return files_.at(paths_.at(name)).entries().at(name);
  }
  absl::StatusOr<HostTensor> Read(const std::string& name) const {
    return files_.at(paths_.at(name)).Read(name);
  }

 private:
  SafetensorsFolder() = default;
  absl::Status OpenSingle(const std::string& path);
  absl::Status OpenShards(const std::string& index_path);

  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, std::string> paths_;
};

// Returns the weight_map of an index: tensor -> shard. The name of a shard
// cannot lead out of the folder (safe_name.h). Every message begins with
// `where`.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(
    absl::string_view json, const std::string& where);

}  // namespace dapd
