#include "common/model/spec/model_family.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/json_integer.h"

namespace dapd {
namespace {

using nlohmann::json;

constexpr int64_t kMaxModelHeadDim = 4096;

enum class Biases {
  kNone,
  kQueriesKeysValues,  // always on q, k and v
  kByAttentionBias,    // on q, k, v and o if attention_bias is true
};

// The layers that attend to a window of sliding_window tokens; none if that key
// is null.
enum class Windows {
  kNone,
  kEveryLayer,
  // Only with use_sliding_window: by layer_types or, without that key, the
  // layers from max_window_layers on.
  kIfUsed,
  // By layer_types or, without that key, every second layer, beginning with the
  // first.
  kAlternate,
};

// The traits of a family. A null key: the family has no such setting.
struct Family {
  const char* model_type;
  bool qk_norm = false;
  Biases biases = Biases::kNone;
  const char* mlp_bias_key = nullptr;
  int64_t head_dim = 0;  // without the key head_dim; 0: hidden_size / heads
  Windows windows = Windows::kNone;
  bool norms_after = false;
  NormScale norm_scale = NormScale::kWeight;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";  // without that key
  bool scales_embedding = false;
  const char* score_divisor_key = nullptr;
  double score_divisor = 0.0;  // if config.json lacks the key
  const char* score_softcap_key = nullptr;
  double score_softcap = 0.0;  // without that key; null is no cap
  const char* logit_softcap_key = nullptr;
  double logit_softcap = 0.0;    // likewise
  bool ties_embeddings = false;  // without the key tie_word_embeddings
};

constexpr Family kFamilies[] = {
    {.model_type = "qwen3",
     .qk_norm = true,
     .biases = Biases::kByAttentionBias,
     .head_dim = 128,
     .windows = Windows::kIfUsed},
    {.model_type = "qwen2",
     .biases = Biases::kQueriesKeysValues,
     .windows = Windows::kIfUsed},
    {.model_type = "llama",
     .biases = Biases::kByAttentionBias,
     .mlp_bias_key = "mlp_bias"},
    {.model_type = "mistral", .windows = Windows::kEveryLayer},
    {.model_type = "gemma2",
     .biases = Biases::kByAttentionBias,
     .head_dim = 256,
     .windows = Windows::kAlternate,
     .norms_after = true,
     .norm_scale = NormScale::kOnePlusWeight,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .scales_embedding = true,
     .score_divisor_key = "query_pre_attn_scalar",
     .score_divisor = 256,
     .score_softcap_key = "attn_logit_softcapping",
     .score_softcap = 50,
     .logit_softcap_key = "final_logit_softcapping",
     .logit_softcap = 30,
     .ties_embeddings = true},
};

const Family* FindFamily(const std::string& model_type) {
  const auto* found =
      std::ranges::find(kFamilies, model_type, &Family::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

// Returns "qwen3, qwen2 and llama".
std::string AllFamilies() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " and ", last);
}

Activation ReadActivation(FieldReader& reader, const Family& family) {
  json named = family.activation;
  if (reader.Has(family.activation_key)) {
    named = reader.object()[family.activation_key];
  }
  if (named == "silu") return Activation::kSilu;
  if (named == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  reader.Fail(family.activation_key,
              absl::StrCat("is ",
                           named.dump(),
                           "; only silu and gelu_pytorch_tanh are supported"));
  return Activation::kSilu;
}

// Returns zero if the family has no such key or if its value is null.
double ReadCap(FieldReader& reader, const char* key, double otherwise) {
  if (key == nullptr) return 0.0;
  if (reader.object().contains(key) && !reader.Has(key)) return 0.0;
  return reader.Positive(key, otherwise);
}

// Returns whether each layer has a window, by the family's rule alone.
std::vector<bool> SlidingLayers(FieldReader& reader,
                                const Family& family,
                                int64_t num_layers) {
  std::vector<bool> slides(static_cast<size_t>(num_layers));
  const json& object = reader.object();
  const bool is_null =
      object.contains("sliding_window") && !reader.Has("sliding_window");
  const bool has_windows = family.windows != Windows::kNone && !is_null &&
                           (family.windows != Windows::kIfUsed ||
                            reader.Boolean("use_sliding_window", false));
  const bool are_listed =
      reader.Has("layer_types") && family.windows != Windows::kEveryLayer;
  int64_t first_layer = 0;
  if (family.windows == Windows::kIfUsed && !are_listed) {
    constexpr int64_t kDefaultFirstLayer = 28;  // as in transformers
    const auto first = JsonInteger(
        object.value("max_window_layers", json(kDefaultFirstLayer)), 0);
    if (first.ok()) first_layer = *first;
  }
  for (int64_t i = 0; i < num_layers; ++i) {
    bool is_sliding = i >= first_layer;
    if (are_listed) {
      const json& types = object["layer_types"];
      is_sliding = types.is_array() && static_cast<size_t>(i) < types.size() &&
                   types[static_cast<size_t>(i)] == "sliding_attention";
    } else if (family.windows == Windows::kAlternate) {
      is_sliding = i % 2 == 0;
    }
    slides[static_cast<size_t>(i)] = has_windows && is_sliding;
  }
  return slides;
}

// Fails if layer_types differs from the family's rule.
void CheckLayerTypes(FieldReader& reader, const std::vector<bool>& slides) {
  if (!reader.Has("layer_types")) return;
  const json& types = reader.object()["layer_types"];
  if (types.size() != slides.size()) {
    reader.Fail(
        "layer_types",
        absl::StrCat(
            "has ", types.size(), " entries for ", slides.size(), " layers"));
  }
  const bool any = std::ranges::count(slides, true) > 0;
  for (const json& type : types) {
    if (type == "full_attention" || (any && type == "sliding_attention")) {
      continue;
    }
    reader.Fail(
        "layer_types",
        absl::StrCat("holds ",
                     type.dump(),
                     "; only full_attention and, with a sliding_window, "
                     "sliding_attention are supported"));
  }
}

// Leaves out a window as long as the context, which excludes nothing.
std::vector<int64_t> ReadWindows(FieldReader& reader,
                                 const Family& family,
                                 const ModelConfig& config) {
  const std::vector<bool> slides =
      SlidingLayers(reader, family, config.num_layers);
  CheckLayerTypes(reader, slides);
  if (std::ranges::count(slides, true) == 0) return {};
  constexpr int64_t kDefaultWindow = 4096;  // as in transformers
  const int64_t window =
      reader.Integer("sliding_window", kDefaultWindow, kMaxPositions);
  if (window >= config.max_positions) return {};
  std::vector<int64_t> windows;
  for (const bool is_sliding : slides) {
    windows.push_back(is_sliding ? window : 0);
  }
  return windows;
}

}  // namespace

std::string ReadModelType(FieldReader& reader) {
  if (!reader.Has("model_type")) {
    reader.Fail("model_type", "is missing");
    return "";
  }
  const json& type = reader.object()["model_type"];
  const std::string name = type.is_string() ? type.get<std::string>() : "";
  if (FindFamily(name) != nullptr) return name;
  reader.Fail("model_type",
              absl::StrCat(
                  type.is_string() ? absl::StrCat("'", name, "'") : type.dump(),
                  " is not supported; ",
                  AllFamilies(),
                  " are"));
  return "";
}

bool TiesEmbeddingsByDefault(const std::string& model_type) {
  return FindFamily(model_type)->ties_embeddings;
}

void ReadFamily(FieldReader& reader, ModelConfig& config) {
  const Family& family = *FindFamily(config.model_type);
  const int64_t quotient =
      std::max<int64_t>(1, config.hidden_size / config.num_heads);
  config.head_dim =
      reader.Integer("head_dim",
                     family.head_dim > 0 ? family.head_dim : quotient,
                     kMaxModelHeadDim);
  config.qk_norm = family.qk_norm;
  const bool by_key = family.biases == Biases::kByAttentionBias &&
                      reader.Boolean("attention_bias", false);
  config.qkv_bias = by_key || family.biases == Biases::kQueriesKeysValues;
  config.output_bias = by_key;
  config.mlp_bias = family.mlp_bias_key != nullptr &&
                    reader.Boolean(family.mlp_bias_key, false);
  config.norms_after = family.norms_after;
  config.norm_scale = family.norm_scale;
  config.activation = ReadActivation(reader, family);
  config.scales_embedding = family.scales_embedding;
  if (family.score_divisor_key != nullptr) {
    config.score_divisor =
        reader.Positive(family.score_divisor_key, family.score_divisor);
  }
  config.score_softcap =
      ReadCap(reader, family.score_softcap_key, family.score_softcap);
  config.logit_softcap =
      ReadCap(reader, family.logit_softcap_key, family.logit_softcap);
  config.windows = ReadWindows(reader, family, config);
}

}  // namespace dapd
