#include "common/model/spec/lora_config.h"

#include <optional>
#include <set>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/hub/hub_id.h"

namespace dapd {
namespace {

// Moves the names of the model's projections out of `names` into the order of
// the layer, on which an adapter's digest depends.
std::vector<std::string> TakeProjections(const ModelConfig& model,
                                         std::set<std::string>* names) {
  std::vector<std::string> found;
  for (const std::string& name : ProjectionNames(model)) {
    if (names->erase(name) > 0) found.push_back(name);
  }
  return found;
}

}  // namespace

absl::StatusOr<LoraConfig> MakeLoraConfig(const LoraSection& section,
                                          const ModelConfig& model) {
  LoraConfig lora{.rank = section.rank, .alpha = section.alpha};
  std::set<std::string> names(section.targets.begin(), section.targets.end());
  lora.targets = TakeProjections(model, &names);
  if (!names.empty()) {
    return ConfigError(absl::StrCat(
        "lora.targets: '", *names.begin(), "' is not a projection"));
  }
  return lora;
}

std::vector<std::string> TargetsOf(const LoraConfig& lora,
                                   const ModelConfig& model) {
  return lora.targets.empty() ? ProjectionNames(model) : lora.targets;
}

std::string FormatLoraConfig(const LoraConfig& lora,
                             const std::string& base_model_path) {
  const std::optional<HubId> id = ParseHubId(base_model_path);
  const bool has_revision = id.has_value() && !id->revision.empty();
  // Only fields that every PEFT since 0.7 knows: older versions refuse new
  // fields.
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
      {"target_modules", lora.targets},
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
