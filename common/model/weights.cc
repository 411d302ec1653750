#include "common/model/weights.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/progress.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/model/weight_names.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxIndexBytes = 64 << 20;
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

// The open files of a checkpoint and which one holds each tensor.
struct Checkpoint {
  std::map<std::string, SafetensorsFile> files;
  std::map<std::string, std::string> file_of;
};

absl::StatusOr<Checkpoint> OpenSingle(const std::string& folder) {
  Checkpoint checkpoint;
  const std::string path = JoinPath(folder, kSingleFile);
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const auto& [name, entry] : file.entries()) {
    checkpoint.file_of[name] = path;
  }
  checkpoint.files.emplace(path, std::move(file));
  return checkpoint;
}

// weight_map of the index: every shard a plain file name.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(
    const std::string& folder) {
  const std::string path = JoinPath(folder, kIndexFile);
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(bytes, path));
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object()) {
    return DataError(absl::StrCat(path, " has no weight_map"));
  }
  std::map<std::string, std::string> map;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().empty() ||
        absl::StrContains(file.get<std::string>(), '/') ||
        absl::StrContains(file.get<std::string>(), "..")) {
      return DataError(absl::StrCat(path,
                                    ": the shard of '",
                                    name,
                                    "' is ",
                                    file.dump(),
                                    ", not a plain file name"));
    }
    map[name] = JoinPath(folder, file.get<std::string>());
  }
  return map;
}

absl::StatusOr<Checkpoint> OpenSharded(const std::string& folder) {
  Checkpoint checkpoint;
  ASSIGN_OR_RETURN(checkpoint.file_of, ReadIndex(folder));
  for (const auto& [name, path] : checkpoint.file_of) {
    if (!checkpoint.files.contains(path)) {
      ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
      checkpoint.files.emplace(path, std::move(file));
    }
    if (!checkpoint.files.at(path).entries().contains(name)) {
      return DataError(absl::StrCat(folder,
                                    "/",
                                    kIndexFile,
                                    " places '",
                                    name,
                                    "' in ",
                                    path,
                                    ", which does not have it"));
    }
  }
  for (const auto& [path, file] : checkpoint.files) {
    for (const auto& [name, entry] : file.entries()) {
      const auto listed = checkpoint.file_of.find(name);
      if (listed == checkpoint.file_of.end() || listed->second != path) {
        return DataError(absl::StrCat(path,
                                      " holds '",
                                      name,
                                      "', which the index ",
                                      listed == checkpoint.file_of.end()
                                          ? "does not list"
                                          : "places elsewhere"));
      }
    }
  }
  return checkpoint;
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& folder) {
  if (FileExists(JoinPath(folder, kIndexFile))) return OpenSharded(folder);
  if (FileExists(JoinPath(folder, kSingleFile))) return OpenSingle(folder);
  return WithExitCode(
      absl::NotFoundError(absl::StrCat(
          folder, " has neither ", kSingleFile, " nor ", kIndexFile)),
      ExitCode::kData);
}

// Buffers that old exporters wrote beside the parameters.
bool IsIgnorable(const std::string& name, const ModelConfig& config) {
  return absl::EndsWith(name, ".rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == kHeadName);
}

absl::Status CheckNames(const std::string& folder,
                        const Checkpoint& checkpoint,
                        const std::vector<WeightSlot>& slots,
                        const ModelConfig& config) {
  std::set<std::string> expected;
  for (const WeightSlot& slot : slots) {
    expected.insert(slot.name);
    if (!checkpoint.file_of.contains(slot.name)) {
      return DataError(absl::StrCat(folder,
                                    ": tensor '",
                                    slot.name,
                                    "' is missing; config.json says ",
                                    config.model_type,
                                    " with ",
                                    config.num_layers,
                                    " layers"));
    }
  }
  for (const auto& [name, path] : checkpoint.file_of) {
    if (!expected.contains(name) && !IsIgnorable(name, config)) {
      return DataError(absl::StrCat(path,
                                    ": tensor '",
                                    name,
                                    "' does not belong to a ",
                                    config.model_type,
                                    " model of ",
                                    config.num_layers,
                                    " layers"));
    }
  }
  return absl::OkStatus();
}

absl::Status LoadSlot(const Checkpoint& checkpoint,
                      const WeightSlot& slot,
                      at::ScalarType dtype,
                      at::Device device) {
  const std::string& path = checkpoint.file_of.at(slot.name);
  const SafetensorsFile& file = checkpoint.files.at(path);
  const SafetensorsEntry& entry = file.entries().at(slot.name);
  const auto refuse = [&](const std::string& problem) {
    return DataError(
        absl::StrCat(path, ": tensor '", slot.name, "' ", problem));
  };
  if (entry.shape != slot.shape) {
    return refuse(absl::StrCat("has shape [",
                               absl::StrJoin(entry.shape, ", "),
                               "], config.json implies [",
                               absl::StrJoin(slot.shape, ", "),
                               "]"));
  }
  if (entry.dtype != DType::kFloat32 && entry.dtype != DType::kBFloat16 &&
      entry.dtype != DType::kFloat16) {
    return refuse(absl::StrCat("has dtype ",
                               DTypeName(entry.dtype),
                               "; float32, bfloat16 or float16 is needed"));
  }
  ASSIGN_OR_RETURN(const HostTensor host, file.Read(slot.name));
  const at::Tensor values = ToTorch(host);
  // One pass: a sum is finite only if every value is.
  if (!std::isfinite(values.sum(at::kDouble).item<double>())) {
    return refuse("holds a value that is not finite; the file is damaged");
  }
  *slot.target = values.to(at::TensorOptions().dtype(dtype).device(device));
  return absl::OkStatus();
}

std::string LayoutDigest(const ModelConfig& config,
                         const std::vector<WeightSlot>& slots) {
  std::string text = absl::StrCat(config.model_type,
                                  " ",
                                  config.rope_theta,
                                  " ",
                                  config.rms_norm_eps,
                                  " ",
                                  config.num_heads,
                                  " ",
                                  config.num_kv_heads,
                                  " ",
                                  config.tied_embeddings,
                                  "\n");
  for (const WeightSlot& slot : slots) {
    absl::StrAppend(
        &text, slot.name, " ", absl::StrJoin(slot.shape, "x"), "\n");
  }
  return Sha256Hex(text);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelWeights>> LoadModelWeights(
    const std::string& folder, at::ScalarType dtype, at::Device device) {
  auto weights = std::make_shared<ModelWeights>();
  ASSIGN_OR_RETURN(weights->config, ReadModelConfig(folder));
  weights->layers.resize(static_cast<size_t>(weights->config.num_layers));
  const std::vector<WeightSlot> slots = WeightSlots(*weights);
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(folder));
  RETURN_IF_ERROR(CheckNames(folder, checkpoint, slots, weights->config));
  at::NoGradGuard no_grad;
  Progress progress("tensors of the model", static_cast<int64_t>(slots.size()));
  int64_t num_loaded = 0;
  for (const WeightSlot& slot : slots) {
    RETURN_IF_ERROR(LoadSlot(checkpoint, slot, dtype, device));
    progress.Update(++num_loaded);
  }
  if (weights->config.tied_embeddings) weights->head = weights->embedding;
  weights->layout_digest = LayoutDigest(weights->config, slots);
  return weights;
}

}  // namespace dapd
