// The safetensors of a model folder: model.safetensors, or the shards that
// model.safetensors.index.json lists. Where both are there the one file counts,
// as in transformers, which leaves the index of shards that it replaces.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "common/tensor/host_tensor.h"
#include "common/tensor/safetensors.h"

namespace dapd {

inline constexpr char kSafetensorsSingleFile[] = "model.safetensors";
inline constexpr char kSafetensorsIndexFile[] = "model.safetensors.index.json";

// The open files and which one holds each tensor. Thread-safe.
class SafetensorsFolder {
 public:
  // An index that disagrees with its shards, in either direction, is refused;
  // so is a shard that is no plain file name.
  static absl::StatusOr<SafetensorsFolder> Open(const std::string& folder);

  // Tensor -> the file that holds it.
  const std::map<std::string, std::string>& paths() const { return paths_; }
  // Of a tensor in paths().
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

// The weight_map of an index: tensor -> shard, whose name leads nowhere but
// into the folder (safe_name.h). `where` leads every message.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(
    absl::string_view json, const std::string& where);

}  // namespace dapd
