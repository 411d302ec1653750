#include "common/model/spec/model_config.h"

#include <optional>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/model/spec/field_reader.h"
#include "common/model/spec/model_family.h"
#include "common/model/spec/rope_config.h"
#include "common/tensor/safetensors_folder.h"

namespace dapd {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxModelConfigBytes = 4 << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;

absl::StatusOr<json> ReadJsonObject(const std::string& path) {
  auto bytes = ReadFile(path, kMaxModelConfigBytes);
  if (!bytes.ok()) return WithExitCode(bytes.status(), ExitCode::kData);
  ASSIGN_OR_RETURN(json parsed, ParseJson(*bytes, path));
  if (!parsed.is_object()) {
    return DataError(absl::StrCat(path, " is not a JSON object"));
  }
  return parsed;
}

// Refuses features of other models that change the result if they are ignored.
void RefuseUnsupported(FieldReader& reader) {
  for (const char* key : {"quantization_config",
                          "num_experts",
                          "num_local_experts",
                          "moe_intermediate_size",
                          "n_routed_experts",
                          "per_layer_config"}) {
    if (reader.Has(key)) reader.Fail(key, "is not supported");
  }
  const json& object = reader.object();
  if (reader.Has("pretraining_tp") && object["pretraining_tp"] != 1) {
    reader.Fail("pretraining_tp", "other than 1 is not supported");
  }
  // In embedding models, which set this, tokens also see later tokens.
  if (!reader.Boolean("is_causal", true)) {
    reader.Fail("is_causal", "is false; only causal attention is supported");
  }
  if (reader.Boolean("use_bidirectional_attention", false)) {
    reader.Fail("use_bidirectional_attention",
                "is true; only causal attention is supported");
  }
}

// Returns an id or a list of ids; nothing if the key is absent or null.
absl::StatusOr<std::vector<int64_t>> ReadTokenIds(const json& object,
                                                  const char* key,
                                                  const ModelConfig& config,
                                                  const std::string& where) {
  if (!object.contains(key) || object[key].is_null()) {
    return std::vector<int64_t>();
  }
  const json list =
      object[key].is_array() ? object[key] : json::array({object[key]});
  const auto ids = JsonTokenIds(list, key, config.vocab_size);
  if (!ids.ok()) {
    return DataError(absl::StrCat(where, ": ", ids.status().message()));
  }
  return std::vector<int64_t>(ids->begin(), ids->end());
}

absl::Status ReadEndTokens(const std::string& folder,
                           const json& object,
                           const std::string& config_path,
                           ModelConfig& config) {
  const std::string path = JoinPath(folder, "generation_config.json");
  json generation = json::object();
  if (FileExists(path)) {
    ASSIGN_OR_RETURN(generation, ReadJsonObject(path));
  }
  using Source = std::pair<const json*, const std::string*>;
  for (const auto& [source, where] :
       {Source(&generation, &path), Source(&object, &config_path)}) {
    if (config.eos_token_ids.empty()) {
      ASSIGN_OR_RETURN(config.eos_token_ids,
                       ReadTokenIds(*source, "eos_token_id", config, *where));
    }
  }
  if (config.eos_token_ids.empty()) {
    return DataError(absl::StrCat(
        folder,
        ": neither generation_config.json nor config.json names an "
        "eos_token_id, so no answer could end"));
  }
  return absl::OkStatus();
}

// transformers loads an adapter beside a model along with the model.
absl::Status RefuseAdapter(const std::string& folder) {
  const auto has = [&](const char* file) {
    return FileExists(JoinPath(folder, file));
  };
  const bool is_adapter = has("adapter_config.json") &&
                          (has("adapter_model.safetensors") ||
                           has("adapter_model.bin") || !has("config.json"));
  if (!is_adapter) return absl::OkStatus();
  const bool is_model = has("config.json") && (has(kSafetensorsSingleFile) ||
                                               has(kSafetensorsIndexFile));
  return DataError(absl::StrCat(
      folder,
      is_model ? " holds an adapter beside the model, and transformers would "
                 "load both; move the adapter's files to a folder of their own "
                 "and, if it is to count, give that as the adapter"
               : " holds an adapter, not a model; give the base model's folder "
                 "here and the adapter with --adapter"));
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder) {
  RETURN_IF_ERROR(RefuseAdapter(folder));
  const std::string path = JoinPath(folder, "config.json");
  ASSIGN_OR_RETURN(const json object, ReadJsonObject(path));
  FieldReader reader(object, path);
  ModelConfig config{.folder = folder};
  config.model_type = ReadModelType(reader);
  RETURN_IF_ERROR(reader.status());
  RefuseUnsupported(reader);
  config.vocab_size = reader.Integer("vocab_size", std::nullopt);
  config.hidden_size = reader.Integer("hidden_size", std::nullopt);
  config.intermediate_size = reader.Integer("intermediate_size", std::nullopt);
  config.num_layers =
      reader.Integer("num_hidden_layers", std::nullopt, kMaxLayers);
  config.num_heads =
      reader.Integer("num_attention_heads", std::nullopt, kMaxHeads);
  config.num_kv_heads = reader.Integer("num_key_value_heads", config.num_heads);
  config.max_positions =
      reader.Integer("max_position_embeddings", std::nullopt, kMaxPositions);
  config.rms_norm_eps = reader.Positive("rms_norm_eps", 1e-6);
  config.tied_embeddings = reader.Boolean(
      "tie_word_embeddings", TiesEmbeddingsByDefault(config.model_type));
  ReadFamily(reader, config);
  ReadRope(
      reader,
      {.head_dim = config.RotatedDim(), .max_positions = config.max_positions},
      &config.rope_theta,
      &config.rope_scaling);
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.Fail("num_attention_heads",
                absl::StrCat("(",
                             config.num_heads,
                             ") is not a multiple of num_key_value_heads (",
                             config.num_kv_heads,
                             ")"));
  }
  if (config.head_dim % 2 != 0) {
    reader.Fail("head_dim", absl::StrCat("(", config.head_dim, ") is odd"));
  }
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(ReadEndTokens(folder, object, path, config));
  return config;
}

}  // namespace dapd
