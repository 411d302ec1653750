#include "common/model/weights/weight_files.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/model/weights/weight_names.h"

namespace dapd {
namespace {

// Returns whether the tensor is a buffer that old exporters wrote beside the
// parameters.
bool IsIgnorable(const std::string& name, const ModelConfig& config) {
  return absl::EndsWith(name, ".rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == kHeadName);
}

// Returns the prefix that all names have before "model.layers.0.", or instead
// of it: programs that save the model within another model leave the prefix
// there. Returns nothing if some names differ.
std::optional<std::string> CommonPrefix(const SafetensorsFolder& files) {
  constexpr char kFirstLayer[] = "layers.0.";
  std::optional<std::string> prefix;
  for (const auto& [name, path] : files.paths()) {
    const size_t layer = name.find(kFirstLayer);
    if (layer == std::string::npos) continue;
    const std::string before = name.substr(0, layer);
    if (prefix.has_value() && *prefix != before) return std::nullopt;
    prefix = before;
  }
  return prefix;
}

absl::Status CheckWeightNames(const std::string& folder,
                              const SafetensorsFolder& files,
                              const std::vector<WeightSlot>& slots,
                              const ModelConfig& config) {
  constexpr char kPrefixOfLayers[] = "model.";
  if (const auto prefix = CommonPrefix(files);
      prefix.has_value() && *prefix != kPrefixOfLayers) {
    return DataError(
        absl::StrCat(folder,
                     ": all names of layers' tensors begin with '",
                     *prefix,
                     "layers.', where a ",
                     config.model_type,
                     " model has 'model.layers.'; save the model by itself "
                     "with transformers' save_pretrained, or rename them"));
  }
  std::set<std::string> expected;
  for (const WeightSlot& slot : slots) {
    expected.insert(slot.name);
    if (files.paths().contains(slot.name)) continue;
    return DataError(absl::StrCat(
        folder,
        ": tensor '",
        slot.name,
        "' is missing; config.json says ",
        config.model_type,
        " with ",
        config.num_layers,
        " layers",
        slot.name == kHeadName
            ? " and tie_word_embeddings: false, so the model needs a head of "
              "its own; set it to true if the head is the embedding"
            : ""));
  }
  for (const auto& [name, path] : files.paths()) {
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

absl::Status CheckSlot(const SafetensorsFolder& files, const WeightSlot& slot) {
  const SafetensorsEntry& entry = files.entry(slot.name);
  const auto refuse = [&](const std::string& problem) {
    return DataError(absl::StrCat(
        files.paths().at(slot.name), ": tensor '", slot.name, "' ", problem));
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
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsFolder> OpenWeightFiles(const ModelConfig& config) {
  ModelWeights weights{.config = config};
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  const std::vector<WeightSlot> slots = WeightSlots(weights);
  ASSIGN_OR_RETURN(SafetensorsFolder files,
                   SafetensorsFolder::Open(config.folder));
  RETURN_IF_ERROR(CheckWeightNames(config.folder, files, slots, config));
  for (const WeightSlot& slot : slots) {
    RETURN_IF_ERROR(CheckSlot(files, slot));
  }
  return files;
}

}  // namespace dapd
