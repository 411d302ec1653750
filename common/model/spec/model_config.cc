#include "common/model/spec/model_config.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxConfigBytes = 4 << 20;
// Ten times the largest published model's; their products fit 63 bits.
constexpr int64_t kMaxExtent = int64_t{1} << 22;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 24;

// Reads typed fields of one JSON object; the first problem stays.
class FieldReader {
 public:
  FieldReader(const json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  bool Has(const char* key) const {
    return object_.contains(key) && !object_[key].is_null();
  }

  // From 1 to `max`.
  int64_t Integer(const char* key,
                  std::optional<int64_t> fallback,
                  int64_t max = kMaxExtent) {
    if (!Has(key)) {
      if (!fallback.has_value()) Fail(key, "is missing");
      return fallback.value_or(1);
    }
    const auto number = JsonInteger(object_[key], 1, max);
    if (!number.ok()) Fail(key, std::string(number.status().message()));
    return number.value_or(1);
  }

  double Positive(const char* key, double fallback) {
    if (!Has(key)) return fallback;
    const json& value = object_[key];
    if (!value.is_number() || !(value.get<double>() > 0.0)) {
      Fail(key, absl::StrCat("is ", value.dump(), ", not a positive number"));
      return fallback;
    }
    return value.get<double>();
  }

  bool Boolean(const char* key, bool fallback) {
    if (!Has(key)) return fallback;
    if (!object_[key].is_boolean()) {
      Fail(key,
           absl::StrCat("is ", object_[key].dump(), ", not true or false"));
      return fallback;
    }
    return object_[key].get<bool>();
  }

  void Fail(const std::string& key, const std::string& problem) {
    if (status_.ok()) {
      status_ = DataError(absl::StrCat(where_, ": ", key, " ", problem));
    }
  }
  const absl::Status& status() const { return status_; }
  const json& object() const { return object_; }

 private:
  const json& object_;
  const std::string where_;
  absl::Status status_;
};

absl::StatusOr<json> ReadJsonObject(const std::string& path) {
  auto bytes = ReadFile(path, kMaxConfigBytes);
  if (!bytes.ok()) return WithExitCode(bytes.status(), ExitCode::kData);
  ASSIGN_OR_RETURN(json parsed, ParseJson(*bytes, path));
  if (!parsed.is_object()) {
    return DataError(absl::StrCat(path, " is no JSON object"));
  }
  return parsed;
}

// Features of other models that change the result if they are ignored.
void RefuseUnsupported(FieldReader& reader) {
  for (const char* key : {"quantization_config",
                          "num_experts",
                          "num_local_experts",
                          "moe_intermediate_size",
                          "n_routed_experts"}) {
    if (reader.Has(key)) reader.Fail(key, "is not supported");
  }
  const json& object = reader.object();
  if (reader.Has("rope_scaling")) {
    const json& scaling = object["rope_scaling"];
    const char* key = scaling.is_object() && scaling.contains("rope_type")
                          ? "rope_type"
                          : "type";
    if (!scaling.is_object() || !scaling.contains(key) ||
        scaling[key] != "default") {
      reader.Fail("rope_scaling",
                  absl::StrCat(scaling.dump(), " is not supported"));
    }
  }
  if (reader.Boolean("use_sliding_window", false)) {
    reader.Fail("use_sliding_window",
                "is true; sliding windows are not "
                "supported");
  }
  if (reader.Has("layer_types") && object["layer_types"].is_array()) {
    for (const json& type : object["layer_types"]) {
      if (type != "full_attention") {
        reader.Fail("layer_types",
                    absl::StrCat("holds ",
                                 type.dump(),
                                 "; only full_attention is "
                                 "supported"));
      }
    }
  }
  if (reader.Has("hidden_act") && object["hidden_act"] != "silu") {
    reader.Fail(
        "hidden_act",
        absl::StrCat(
            "is ", object["hidden_act"].dump(), "; only silu is supported"));
  }
  if (reader.Has("pretraining_tp") && object["pretraining_tp"] != 1) {
    reader.Fail("pretraining_tp", "other than 1 is not supported");
  }
}

// Old spelling: rope_theta. New: rope_parameters {rope_theta, rope_type}.
void ReadRope(FieldReader& reader, ModelConfig& config) {
  config.rope_theta = reader.Positive("rope_theta", config.rope_theta);
  if (!reader.Has("rope_parameters")) return;
  const json& parameters = reader.object()["rope_parameters"];
  if (!parameters.is_object()) {
    reader.Fail("rope_parameters", "is no object");
    return;
  }
  FieldReader rope(parameters, "rope_parameters");
  if (rope.Has("rope_type") && parameters["rope_type"] != "default") {
    reader.Fail(
        "rope_parameters",
        absl::StrCat(
            "of type ", parameters["rope_type"].dump(), " is not supported"));
  }
  config.rope_theta = rope.Positive("rope_theta", config.rope_theta);
  if (!rope.status().ok()) {
    reader.Fail("rope_parameters", std::string(rope.status().message()));
  }
}

void ReadFamily(FieldReader& reader, ModelConfig& config) {
  const json& object = reader.object();
  if (!reader.Has("model_type") || !object["model_type"].is_string()) {
    reader.Fail("model_type", "is missing");
    return;
  }
  config.model_type = object["model_type"].get<std::string>();
  const int64_t quotient =
      std::max<int64_t>(1, config.hidden_size / config.num_heads);
  if (config.model_type == "qwen3") {
    config.qk_norm = true;
    config.qkv_bias = reader.Boolean("attention_bias", false);
    config.output_bias = config.qkv_bias;
    config.head_dim = reader.Integer("head_dim", 128, kMaxHeadDim);
  } else if (config.model_type == "qwen2") {
    config.qkv_bias = true;
    config.head_dim = reader.Integer("head_dim", quotient, kMaxHeadDim);
  } else if (config.model_type == "llama") {
    config.qkv_bias = reader.Boolean("attention_bias", false);
    config.output_bias = config.qkv_bias;
    config.mlp_bias = reader.Boolean("mlp_bias", false);
    config.head_dim = reader.Integer("head_dim", quotient, kMaxHeadDim);
  } else {
    reader.Fail("model_type",
                absl::StrCat("'",
                             config.model_type,
                             "' is not supported; qwen3, qwen2 "
                             "and llama are"));
  }
}

// An id or a list of ids; nothing if the key is absent or null.
absl::StatusOr<std::vector<int64_t>> ReadTokenIds(const json& object,
                                                  const char* key,
                                                  const ModelConfig& config,
                                                  const std::string& where) {
  std::vector<int64_t> ids;
  if (!object.contains(key) || object[key].is_null()) return ids;
  const json list =
      object[key].is_array() ? object[key] : json::array({object[key]});
  for (const json& id : list) {
    const auto token = JsonInteger(id, 0, config.vocab_size - 1);
    if (!token.ok()) {
      return DataError(absl::StrCat(where,
                                    ": ",
                                    key,
                                    ": ",
                                    std::string(token.status().message()),
                                    " (the vocabulary's ids)"));
    }
    ids.push_back(*token);
  }
  return ids;
}

absl::Status ReadSpecialTokens(const std::string& folder,
                               const json& object,
                               const std::string& config_path,
                               ModelConfig& config) {
  const std::string path = JoinPath(folder, "generation_config.json");
  json generation = json::object();
  if (FileExists(path)) {
    ASSIGN_OR_RETURN(generation, ReadJsonObject(path));
  }
  std::vector<int64_t> pad;
  using Source = std::pair<const json*, const std::string*>;
  for (const auto& [source, where] :
       {Source(&generation, &path), Source(&object, &config_path)}) {
    if (config.eos_token_ids.empty()) {
      ASSIGN_OR_RETURN(config.eos_token_ids,
                       ReadTokenIds(*source, "eos_token_id", config, *where));
    }
    if (pad.empty()) {
      ASSIGN_OR_RETURN(pad,
                       ReadTokenIds(*source, "pad_token_id", config, *where));
    }
  }
  if (config.eos_token_ids.empty()) {
    return DataError(absl::StrCat(
        folder,
        ": neither generation_config.json nor config.json names an "
        "eos_token_id, so no answer could end"));
  }
  config.pad_token_id = pad.empty() ? -1 : pad[0];
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSplit(const ModelConfig& config, int64_t ranks) {
  const auto check = [&](const char* what, int64_t count) -> absl::Status {
    if (count % ranks == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the model's ",
                     count,
                     " ",
                     what,
                     " cannot be split over ",
                     ranks,
                     " ranks; choose a number of ranks that divides them"));
  };
  for (const absl::Status& status :
       {check("attention heads", config.num_heads),
        check("key-value heads", config.num_kv_heads),
        check("MLP columns", config.intermediate_size)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder) {
  const std::string path = JoinPath(folder, "config.json");
  if (!FileExists(path) &&
      FileExists(JoinPath(folder, "adapter_config.json"))) {
    return DataError(absl::StrCat(
        folder,
        " holds an adapter, not a model; give the base model's folder "
        "here and the adapter with --adapter"));
  }
  ASSIGN_OR_RETURN(const json object, ReadJsonObject(path));
  FieldReader reader(object, path);
  RefuseUnsupported(reader);
  ModelConfig config;
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
  config.tied_embeddings = reader.Boolean("tie_word_embeddings", false);
  ReadFamily(reader, config);
  ReadRope(reader, config);
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.Fail("num_attention_heads",
                absl::StrCat("(",
                             config.num_heads,
                             ") is no multiple of num_key_value_heads (",
                             config.num_kv_heads,
                             ")"));
  }
  if (config.head_dim % 2 != 0) {
    reader.Fail("head_dim", absl::StrCat("(", config.head_dim, ") is odd"));
  }
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(ReadSpecialTokens(folder, object, path, config));
  return config;
}

const char* ProjectionName(Projection projection) {
  switch (projection) {
    case Projection::kQ:
      return "q_proj";
    case Projection::kK:
      return "k_proj";
    case Projection::kV:
      return "v_proj";
    case Projection::kO:
      return "o_proj";
    case Projection::kGate:
      return "gate_proj";
    case Projection::kUp:
      return "up_proj";
    case Projection::kDown:
      return "down_proj";
  }
  return "";
}

int64_t ProjectionIn(const ModelConfig& config, Projection projection) {
  switch (projection) {
    case Projection::kO:
      return config.num_heads * config.head_dim;
    case Projection::kDown:
      return config.intermediate_size;
    default:
      return config.hidden_size;
  }
}

int64_t ProjectionOut(const ModelConfig& config, Projection projection) {
  switch (projection) {
    case Projection::kQ:
      return config.num_heads * config.head_dim;
    case Projection::kK:
    case Projection::kV:
      return config.num_kv_heads * config.head_dim;
    case Projection::kGate:
    case Projection::kUp:
      return config.intermediate_size;
    default:
      return config.hidden_size;
  }
}

bool ProjectionHasBias(const ModelConfig& config, Projection projection) {
  switch (projection) {
    case Projection::kQ:
    case Projection::kK:
    case Projection::kV:
      return config.qkv_bias;
    case Projection::kO:
      return config.output_bias;
    default:
      return config.mlp_bias;
  }
}

int64_t ModelConfig::NumParameters() const {
  int64_t layer = 2 * hidden_size + (qk_norm ? 2 * head_dim : 0);
  for (int p = 0; p < kNumProjections; ++p) {
    const auto projection = static_cast<Projection>(p);
    const int64_t out = ProjectionOut(*this, projection);
    layer += out * ProjectionIn(*this, projection);
    if (ProjectionHasBias(*this, projection)) layer += out;
  }
  const int64_t tables = (tied_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return num_layers * layer + tables + hidden_size;
}

int64_t NumLoraParameters(const ModelConfig& config,
                          int64_t rank,
                          const std::vector<Projection>& targets) {
  int64_t layer = 0;
  for (const Projection target : targets) {
    layer +=
        rank * (ProjectionIn(config, target) + ProjectionOut(config, target));
  }
  return config.num_layers * layer;
}

std::vector<Projection> AllProjections() {
  std::vector<Projection> all;
  for (int p = 0; p < kNumProjections; ++p) {
    all.push_back(static_cast<Projection>(p));
  }
  return all;
}

}  // namespace dapd
