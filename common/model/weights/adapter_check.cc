#include "common/model/weights/adapter_check.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/hub/model_folder.h"
#include "common/model/weights/weight_names.h"
#include "common/tensor/safetensors_folder.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

constexpr char kPickleFile[] = "adapter_model.bin";  // PEFT's file until 0.7

// Returns the part of a name before "layers.<number>.", or nothing for a name
// without it.
std::optional<std::string> BeforeLayers(const std::string& name) {
  const std::string mark_of_layers = "layers.";
  const size_t mark = name.find(mark_of_layers);
  if (mark == std::string::npos) return std::nullopt;
  const size_t number = mark + mark_of_layers.size();
  const size_t end = name.find_first_not_of("0123456789", number);
  if (end == number || end == std::string::npos || name[end] != '.') {
    return std::nullopt;
  }
  return name.substr(0, mark);
}

// Reports a cause that all names share by itself, and not as a missing tensor.
absl::Status CheckAdapterPrefixes(const TensorEntries& entries,
                                  const std::string& where) {
  const std::string expected = absl::StrCat(kAdapterPrefix, "model.");
  std::set<std::string> prefixes;
  for (const auto& [name, entry] : entries) {
    if (const auto prefix = BeforeLayers(name); prefix.has_value()) {
      prefixes.insert(*prefix);
    }
  }
  if (prefixes.size() == 1 && *prefixes.begin() != expected) {
    return DataError(absl::StrCat(where,
                                  ": all names of tensors begin with '",
                                  *prefixes.begin(),
                                  "', where PEFT writes '",
                                  expected,
                                  "'; PEFT would skip them without an error: "
                                  "rename them"));
  }
  for (const auto& [name, entry] : entries) {
    if (!absl::StartsWith(name, kAdapterPrefix)) {
      return DataError(absl::StrCat(where,
                                    ": tensor '",
                                    name,
                                    "' lacks PEFT's prefix ",
                                    kAdapterPrefix,
                                    "; loaders would silently skip it"));
    }
    // "...lora_A.default.weight" includes the adapter's name, as in memory.
    const size_t lora = name.rfind(".lora_");
    const std::string end = lora == std::string::npos ? "" : name.substr(lora);
    if ((absl::StartsWith(end, ".lora_A.") ||
         absl::StartsWith(end, ".lora_B.")) &&
        end != kLoraA && end != kLoraB) {
      return DataError(absl::StrCat(
          where,
          ": tensor '",
          name,
          "' ends in '",
          end,
          "', as in a PEFT model in memory, with the adapter's name; PEFT's "
          "save_pretrained writes '",
          end.substr(0, sizeof(".lora_A") - 1),
          ".weight', and PEFT would skip the others without an error"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEntry(const SafetensorsEntry& entry,
                        const std::vector<int64_t>& shape,
                        const std::string& what) {
  if (entry.shape != shape) {
    return DataError(absl::StrCat(what,
                                  " has shape [",
                                  absl::StrJoin(entry.shape, ", "),
                                  "], expected [",
                                  absl::StrJoin(shape, ", "),
                                  "]"));
  }
  if (entry.dtype != DType::kFloat32 && entry.dtype != DType::kBFloat16 &&
      entry.dtype != DType::kFloat16) {
    return DataError(absl::StrCat(what, " has dtype ", DTypeName(entry.dtype)));
  }
  return absl::OkStatus();
}

// PEFT would replace the base's tensor by a trained copy.
absl::Status CheckCopies(const std::vector<std::string>& copies,
                         const SafetensorsFile& adapter,
                         const ModelConfig& model,
                         const std::string& where) {
  if (copies.empty()) return absl::OkStatus();
  if (model.folder.empty()) {
    return DataError(absl::StrCat(where,
                                  ": tensor '",
                                  kAdapterPrefix,
                                  copies.front(),
                                  "' is one of the base, which is not known "
                                  "here; remove it"));
  }
  ASSIGN_OR_RETURN(const SafetensorsFolder base,
                   SafetensorsFolder::Open(model.folder));
  for (const std::string& name : copies) {
    const bool is_tied = name == kHeadName && !base.paths().contains(name);
    ASSIGN_OR_RETURN(const HostTensor ours,
                     base.Read(is_tied ? kEmbeddingName : name));
    ASSIGN_OR_RETURN(const HostTensor copy,
                     adapter.Read(absl::StrCat(kAdapterPrefix, name)));
    const bool is_same =
        copy.shape == ours.shape &&
        (copy.dtype == ours.dtype ? copy.bytes() == ours.bytes()
                                  : at::equal(ToTorch(copy).to(at::kFloat),
                                              ToTorch(ours).to(at::kFloat)));
    if (!is_same) {
      return DataError(absl::StrCat(where,
                                    ": tensor '",
                                    kAdapterPrefix,
                                    name,
                                    "' differs from the base's, which PEFT "
                                    "would replace by it; ",
                                    kMergeInstead));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckAdapterTensors(
    const PeftConfig& peft,
    const TensorEntries& entries,
    const ModelConfig& model,
    const std::string& where) {
  RETURN_IF_ERROR(CheckAdapterPrefixes(entries, where));
  std::set<std::string> expected;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerRecipe recipe = LayerRecipeOf(model, layer);
    for (const Projection target : recipe.All()) {
      const ProjectionRecipe& own = recipe[target];
      const auto& module =
          peft.layers[static_cast<size_t>(layer)][IndexOf(target)];
      if (!module.has_value()) continue;
      const std::string name =
          absl::StrCat(kAdapterPrefix, ModulePath(layer, own.module));
      for (const auto& [suffix, shape] :
           {std::pair(kLoraA, std::vector{module->rank, own.in}),
            std::pair(kLoraB, std::vector{own.out, module->rank})}) {
        const std::string tensor = absl::StrCat(name, suffix);
        const auto found = entries.find(tensor);
        if (found == entries.end()) {
          return DataError(absl::StrCat(where,
                                        ": tensor '",
                                        tensor,
                                        "' is missing, of a module that ",
                                        "adapter_config.json",
                                        " names"));
        }
        RETURN_IF_ERROR(
            CheckEntry(found->second,
                       shape,
                       absl::StrCat(where, ": tensor '", tensor, "'")));
        expected.insert(tensor);
      }
    }
  }
  ModelWeights base{.config = model};
  base.layers.resize(static_cast<size_t>(model.num_layers));
  std::set<std::string> of_base = {kHeadName};
  for (const WeightSlot& slot : WeightSlots(base)) of_base.insert(slot.name);
  std::vector<std::string> copies;
  for (const auto& [name, entry] : entries) {
    if (expected.contains(name)) continue;
    std::string own = name.substr(sizeof(kAdapterPrefix) - 1);
    if (!of_base.contains(own)) {
      return DataError(absl::StrCat(where,
                                    ": tensor '",
                                    name,
                                    "' belongs to no target ",
                                    "module of this model (",
                                    model.num_layers,
                                    " layers)"));
    }
    copies.push_back(std::move(own));
  }
  return copies;
}

absl::StatusOr<PeftConfig> CheckAdapterFiles(const std::string& folder,
                                             const ModelConfig& model) {
  ASSIGN_OR_RETURN(PeftConfig peft, ReadPeftConfig(folder, model));
  const std::string path = JoinPath(folder, kAdapterTensorFile);
  if (!FileExists(path) && FileExists(JoinPath(folder, kPickleFile))) {
    return DataError(absl::StrCat(folder,
                                  " has its tensors in ",
                                  kPickleFile,
                                  ", which is not read; PEFT's save_pretrained "
                                  "writes them as ",
                                  kAdapterTensorFile));
  }
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  ASSIGN_OR_RETURN(const std::vector<std::string> copies,
                   CheckAdapterTensors(peft, file.entries(), model, path));
  RETURN_IF_ERROR(CheckCopies(copies, file, model, path));
  return peft;
}

absl::StatusOr<std::string> FindStartAdapter(const LoraSection& lora,
                                             const ModelConfig& model) {
  if (lora.start_from.empty()) return std::string();
  ASSIGN_OR_RETURN(const std::string folder,
                   FindAdapterFolder(lora.start_from));
  ASSIGN_OR_RETURN(const PeftConfig adapter, CheckAdapterFiles(folder, model));
  RETURN_IF_ERROR(CheckStartAdapter(folder, adapter, lora));
  return folder;
}

}  // namespace dapd
