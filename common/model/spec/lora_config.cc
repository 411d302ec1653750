#include "common/model/spec/lora_config.h"

#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/hub/hub_id.h"

namespace dapd {
namespace {

using nlohmann::json;

constexpr int64_t kMaxRank = 4096;
constexpr uint64_t kMaxAdapterConfigBytes = 1 << 20;

// True if the key is absent or holds its neutral value.
bool IsNeutral(const json& config, const char* key) {
  if (!config.contains(key)) return true;
  const json& value = config[key];
  return value.is_null() || value == false || value == "none" ||
         (value.is_structured() && value.empty());
}

// Whether PEFT took the adapter's first weights out of the base's.
bool ChangesBase(const json& config) {
  const json init = config.value("init_lora_weights", json());
  if (!init.is_string()) return false;
  const std::string name = absl::AsciiStrToLower(init.get<std::string>());
  return absl::StartsWith(name, "pissa") || absl::StartsWith(name, "corda") ||
         name == "olora" || name == "loftq" || name == "lora_ga";
}

// Those among `names`, which keeps the others, in the order of the layer
// whatever that of the names was: an adapter's digest depends on it.
std::vector<Projection> TakeProjections(std::set<std::string>* names) {
  std::vector<Projection> found;
  for (const Projection projection : AllProjections()) {
    if (names->erase(ProjectionName(projection)) > 0) {
      found.push_back(projection);
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<LoraConfig> MakeLoraConfig(const LoraSection& section) {
  LoraConfig lora{.rank = section.rank, .alpha = section.alpha};
  std::set<std::string> names(section.targets.begin(), section.targets.end());
  lora.targets = TakeProjections(&names);
  if (!names.empty()) {
    return ConfigError(absl::StrCat(
        "lora.targets: '", *names.begin(), "' is not a projection"));
  }
  return lora;
}

absl::StatusOr<LoraConfig> ParseLoraConfig(const std::string& text,
                                           const std::string& where) {
  ASSIGN_OR_RETURN(const json config, ParseJson(text, where));
  const auto refuse = [&](const std::string& problem) {
    return DataError(absl::StrCat(where, ": ", problem));
  };
  if (!config.is_object() || config.value("peft_type", json()) != "LORA") {
    return refuse("peft_type is not LORA");
  }
  for (const char* key : {"use_dora",
                          "use_rslora",
                          "modules_to_save",
                          "rank_pattern",
                          "alpha_pattern",
                          "bias",
                          "fan_in_fan_out",
                          "layers_to_transform",
                          "layer_replication",
                          "lora_bias",
                          "trainable_token_indices",
                          "alora_invocation_tokens"}) {
    if (!IsNeutral(config, key)) {
      return refuse(absl::StrCat(key,
                                 " = ",
                                 config[key].dump(),
                                 " is not supported; ",
                                 kMergeInstead));
    }
  }
  if (ChangesBase(config)) {
    return refuse(
        absl::StrCat("init_lora_weights = ",
                     config["init_lora_weights"].dump(),
                     " is not supported: such an adapter belongs to a base "
                     "whose weights were changed when training began; convert "
                     "it with PEFT's save_pretrained("
                     "path_initial_model_for_weight_conversion=...)"));
  }
  LoraConfig lora;
  const auto rank = JsonInteger(config.value("r", json()), 1, kMaxRank);
  if (!rank.ok()) {
    return refuse(absl::StrCat("r: ", std::string(rank.status().message())));
  }
  lora.rank = *rank;
  if (!config.contains("lora_alpha") || !config["lora_alpha"].is_number() ||
      std::abs(config["lora_alpha"].get<double>()) > kMaxLoraAlpha) {
    return refuse(
        absl::StrCat("lora_alpha must be a number up to ", kMaxLoraAlpha));
  }
  lora.alpha = config["lora_alpha"].get<double>();
  if (!config.contains("target_modules") ||
      !config["target_modules"].is_array()) {
    return refuse(absl::StrCat(
        "target_modules is ",
        config.value("target_modules", json()).dump(),
        "; it must be a list of projections, such as \"q_proj\": write those "
        "that the adapter has tensors of in place of an expression"));
  }
  std::set<std::string> names;
  for (const json& name : config["target_modules"]) {
    if (!name.is_string()) {
      return refuse("target_modules contains something that is not a string");
    }
    names.insert(name.get<std::string>());
  }
  lora.targets = TakeProjections(&names);
  if (!names.empty()) {
    return refuse(absl::StrCat("target module '",
                               *names.begin(),
                               "' is not one of the seven projections; ",
                               kMergeInstead));
  }
  if (lora.targets.empty()) return refuse("target_modules is empty");
  return lora;
}

absl::Status CheckStartAdapter(const std::string& folder,
                               const LoraSection& settings) {
  const std::string path = JoinPath(folder, "adapter_config.json");
  auto text = ReadFile(path, kMaxAdapterConfigBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kData);
  ASSIGN_OR_RETURN(const LoraConfig lora, ParseLoraConfig(*text, path));
  std::vector<std::string> targets;
  for (const Projection target : lora.targets) {
    targets.push_back(ProjectionName(target));
  }
  std::vector<std::string> fitting;
  if (lora.rank != settings.rank) {
    fitting.push_back(absl::StrCat("lora.rank=", lora.rank));
  }
  if (lora.alpha != settings.alpha) {
    fitting.push_back(absl::StrCat("lora.alpha=", lora.alpha));
  }
  if (std::set<std::string>(targets.begin(), targets.end()) !=
      std::set<std::string>(settings.targets.begin(), settings.targets.end())) {
    fitting.push_back(
        absl::StrCat("lora.targets=[", absl::StrJoin(targets, ","), "]"));
  }
  if (fitting.empty()) return absl::OkStatus();
  return ConfigError(
      absl::StrCat("lora.start_from: the adapter in ",
                   folder,
                   " was trained with other settings; to continue from it set ",
                   absl::StrJoin(fitting, " ")));
}

std::string FormatLoraConfig(const LoraConfig& lora,
                             const std::string& base_model_path) {
  std::vector<std::string> targets;
  for (const Projection target : lora.targets) {
    targets.push_back(ProjectionName(target));
  }
  const std::optional<HubId> id = ParseHubId(base_model_path);
  const bool has_revision = id.has_value() && !id->revision.empty();
  // Only fields that every PEFT since 0.7 knows: older ones refuse new fields.
  const nlohmann::ordered_json config = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", has_revision ? id->name : base_model_path},
      {"revision",
       has_revision ? nlohmann::ordered_json(id->revision)
                    : nlohmann::ordered_json()},
      {"r", lora.rank},
      {"lora_alpha", lora.alpha},
      {"lora_dropout", 0.0},
      {"bias", "none"},
      {"target_modules", targets},
      {"fan_in_fan_out", false},
      {"use_rslora", false},
      {"use_dora", false},
      {"init_lora_weights", true},
      {"inference_mode", true},
      {"modules_to_save", nullptr},
      {"rank_pattern", nlohmann::ordered_json::object()},
      {"alpha_pattern", nlohmann::ordered_json::object()},
  };
  return config.dump(2) + "\n";
}

}  // namespace dapd
