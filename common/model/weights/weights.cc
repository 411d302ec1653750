#include "common/model/weights/weights.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/progress.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/model/spec/gpu_model.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/weight_files.h"
#include "common/model/weights/weight_names.h"
#include "common/tensor/safetensors_folder.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

absl::Status LoadSlot(const SafetensorsFolder& files,
                      const WeightSlot& slot,
                      at::ScalarType dtype,
                      at::Device device,
                      const WeightPart& part) {
  ASSIGN_OR_RETURN(const HostTensor host, files.Read(slot.name));
  at::Tensor values = ToTorch(host);
  // One pass is enough: a sum is finite only if every value is finite.
  if (!std::isfinite(values.sum(at::kDouble).item<double>())) {
    return DataError(absl::StrCat(files.paths().at(slot.name),
                                  ": tensor '",
                                  slot.name,
                                  "' holds a value that is not finite; the "
                                  "file is damaged"));
  }
  if (part && slot.projection.has_value()) {
    values = part(*slot.projection, values);
  }
  *slot.target = values.to(at::TensorOptions().dtype(dtype).device(device));
  return absl::OkStatus();
}

// Refuses a separate head in a model whose config.json ties it: only its author
// knows which of the two is meant, and programs that read such folders differ.
absl::Status CheckTiedHead(const SafetensorsFolder& files,
                           const std::string& embedding_name) {
  if (!files.paths().contains(kHeadName)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostTensor head, files.Read(kHeadName));
  ASSIGN_OR_RETURN(const HostTensor embedding, files.Read(embedding_name));
  const bool is_same = head.dtype == embedding.dtype
                           ? head.bytes() == embedding.bytes()
                           : at::equal(ToTorch(head).to(at::kFloat),
                                       ToTorch(embedding).to(at::kFloat));
  if (is_same) return absl::OkStatus();
  return DataError(absl::StrCat(
      files.paths().at(kHeadName),
      ": tensor '",
      kHeadName,
      "' differs from '",
      embedding_name,
      "', and config.json says tie_word_embeddings: true; set it to false if "
      "the model has this head, otherwise remove the tensor"));
}

std::string LayoutDigest(const ModelConfig& config,
                         const std::vector<WeightSlot>& slots) {
  // All digits, because a token's position depends on the last digit.
  std::string text = absl::StrFormat("%s %.17g %.17g %d %d %d\n",
                                     config.model_type,
                                     config.rope_theta,
                                     config.rms_norm_eps,
                                     config.num_heads,
                                     config.num_kv_heads,
                                     config.tied_embeddings);
  if (config.rope_scaling.has_value()) {
    absl::StrAppend(&text, RopeScalingText(*config.rope_scaling), "\n");
  }
  if (const std::string recipe = RecipeText(config); !recipe.empty()) {
    absl::StrAppend(&text, recipe, "\n");
  }
  for (const WeightSlot& slot : slots) {
    absl::StrAppend(
        &text, slot.name, " ", absl::StrJoin(slot.shape, "x"), "\n");
  }
  return Sha256Hex(text);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelWeights>> LoadModelWeights(
    const std::string& folder,
    at::ScalarType dtype,
    at::Device device,
    const WeightPart& part) {
  auto weights = std::make_shared<ModelWeights>();
  ASSIGN_OR_RETURN(weights->config, ReadModelConfig(folder));
  if (device.is_cuda()) {
    RETURN_IF_ERROR(CheckGpuModel(PrecisionOf(dtype), weights->config));
  }
  weights->layers.resize(static_cast<size_t>(weights->config.num_layers));
  const std::vector<WeightSlot> slots = WeightSlots(*weights);
  ASSIGN_OR_RETURN(const SafetensorsFolder files,
                   OpenWeightFiles(weights->config));
  at::NoGradGuard no_grad;
  if (weights->config.tied_embeddings) {
    RETURN_IF_ERROR(CheckTiedHead(files, slots.front().name));
  }
  Progress progress("tensors of the model", static_cast<int64_t>(slots.size()));
  int64_t num_loaded = 0;
  for (const WeightSlot& slot : slots) {
    RETURN_IF_ERROR(LoadSlot(files, slot, dtype, device, part));
    progress.Update(++num_loaded);
  }
  if (weights->config.tied_embeddings) weights->head = weights->embedding;
  weights->layout_digest = LayoutDigest(weights->config, slots);
  return weights;
}

absl::StatusOr<HeadWeights> LoadHeadWeights(const std::string& folder,
                                            at::ScalarType dtype,
                                            at::Device device) {
  ModelWeights shape;
  ASSIGN_OR_RETURN(shape.config, ReadModelConfig(folder));
  shape.layers.resize(static_cast<size_t>(shape.config.num_layers));
  const std::vector<WeightSlot> slots = WeightSlots(shape);
  ASSIGN_OR_RETURN(const SafetensorsFolder files,
                   OpenWeightFiles(shape.config));
  HeadWeights head{.config = shape.config,
                   .layout_digest = LayoutDigest(shape.config, slots)};
  const at::Tensor* const wanted =
      shape.config.tied_embeddings ? &shape.embedding : &shape.head;
  at::NoGradGuard no_grad;
  for (const WeightSlot& slot : slots) {
    if (slot.target != wanted) continue;
    RETURN_IF_ERROR(LoadSlot(files, slot, dtype, device, /*part=*/nullptr));
  }
  head.head = *wanted;
  return head;
}

absl::StatusOr<at::ScalarType> StoredPrecision(const std::string& folder) {
  ASSIGN_OR_RETURN(const SafetensorsFolder files,
                   SafetensorsFolder::Open(folder));
  bool has_matrix = false;
  for (const auto& [name, path] : files.paths()) {
    const SafetensorsEntry& entry = files.entry(name);
    if (entry.shape.size() < 2) continue;
    if (entry.dtype != DType::kBFloat16) return at::kFloat;
    has_matrix = true;
  }
  return has_matrix ? at::kBFloat16 : at::kFloat;
}

}  // namespace dapd
