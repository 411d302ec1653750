#include "common/model/spec/peft_config.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

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
#include "common/config/yaml_text.h"
#include "common/model/spec/module_pattern.h"

namespace dapd {
namespace {

using nlohmann::json;

constexpr int64_t kMaxRank = 4096;
constexpr uint64_t kMaxAdapterConfigBytes = 1 << 20;

// Returns whether the setting is read here or has no effect on a trained
// adapter; every other setting must be neutral.
bool IsKnown(const std::string& key) {
  static const auto& known = *new std::set<std::string>{
      // These settings are read.
      "peft_type",
      "r",
      "lora_alpha",
      "use_rslora",
      "target_modules",
      "exclude_modules",
      "layers_to_transform",
      "layers_pattern",
      "rank_pattern",
      "alpha_pattern",
      "modules_to_save",
      "init_lora_weights",
      "base_model_name_or_path",
      // These settings describe training, places and authors.
      "task_type",
      "auto_mapping",
      "peft_version",
      "revision",
      "inference_mode",
      "lora_dropout",
      "megatron_core",
      "loftq_config",
      "eva_config",
      "corda_config",
      "lora_ga_config",
      "qalora_group_size",
      "runtime_config",
      "ensure_weight_tying"};
  return known.contains(key);
}

// Returns whether the value has no effect.
bool IsNeutral(const json& value) {
  return value.is_null() || value == false || value == "none" ||
         (value.is_structured() && value.empty());
}

// Returns whether PEFT took the adapter's first weights out of the base's
// weights.
bool ChangesBase(const json& config) {
  const json init = config.value("init_lora_weights", json());
  if (!init.is_string()) return false;
  const std::string name = absl::AsciiStrToLower(init.get<std::string>());
  return absl::StartsWith(name, "pissa") || absl::StartsWith(name, "corda") ||
         name == "olora" || name == "loftq" || name == "lora_ga";
}

// Reads an adapter_config.json and keeps the first problem.
class Parser {
 public:
  Parser(const json& config, const ModelConfig& model, std::string where)
      : config_(config), model_(model), where_(std::move(where)) {}

  absl::StatusOr<PeftConfig> Parse() {
    RETURN_IF_ERROR(CheckKeys());
    RETURN_IF_ERROR(ReadNumbers());
    RETURN_IF_ERROR(ReadModules());
    PeftConfig peft;
    peft.layers.resize(static_cast<size_t>(model_.num_layers));
    for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
      for (const std::string& module : ModulesOf(layer)) {
        auto& found = peft.layers[static_cast<size_t>(layer)].emplace_back();
        if (!IsTarget(module)) continue;
        ASSIGN_OR_RETURN(found, ModuleOf(module));
      }
    }
    RETURN_IF_ERROR(Unify(&peft));
    if (const json base = config_.value("base_model_name_or_path", json());
        base.is_string()) {
      peft.base = base.get<std::string>();
    }
    return peft;
  }

 private:
  absl::Status Refuse(const std::string& problem) const {
    return DataError(absl::StrCat(where_, ": ", problem));
  }
  json Value(const char* key) const { return config_.value(key, json()); }

  absl::Status CheckKeys() const {
    if (!config_.is_object() || Value("peft_type") != "LORA") {
      return Refuse("peft_type is not LORA");
    }
    for (const auto& [key, value] : config_.items()) {
      if (IsKnown(key) || IsNeutral(value)) continue;
      return Refuse(absl::StrCat(
          key, " = ", value.dump(), " is not supported; ", kMergeInstead));
    }
    if (!ChangesBase(config_)) return absl::OkStatus();
    return Refuse(
        absl::StrCat("init_lora_weights = ",
                     Value("init_lora_weights").dump(),
                     " is not supported: such an adapter belongs to a base "
                     "whose weights were changed when training began; convert "
                     "it with PEFT's save_pretrained("
                     "path_initial_model_for_weight_conversion=...)"));
  }

  absl::StatusOr<int64_t> ReadRank(const json& value,
                                   const std::string& key) const {
    const auto rank = JsonInteger(value, 1, kMaxRank);
    if (rank.ok()) return rank;
    return Refuse(
        absl::StrCat(key, ": ", std::string(rank.status().message())));
  }

  absl::StatusOr<double> ReadAlpha(const json& value,
                                   const std::string& key) const {
    if (!value.is_number() ||
        !(std::abs(value.get<double>()) <= kMaxLoraAlpha)) {
      return Refuse(
          absl::StrCat(key, " must be a number up to ", kMaxLoraAlpha));
    }
    return value.get<double>();
  }

  absl::Status ReadNumbers() {
    ASSIGN_OR_RETURN(rank_, ReadRank(Value("r"), "r"));
    ASSIGN_OR_RETURN(alpha_, ReadAlpha(Value("lora_alpha"), "lora_alpha"));
    const json rslora = Value("use_rslora");
    if (!rslora.is_null() && !rslora.is_boolean()) {
      return Refuse("use_rslora is neither true nor false");
    }
    divides_by_root_ = rslora == true;
    return absl::OkStatus();
  }

  absl::StatusOr<ModuleSet> ReadSet(const char* key) const {
    auto set = ModuleSet::Parse(Value(key));
    if (set.ok()) return set;
    return Refuse(absl::StrCat(key, ": ", std::string(set.status().message())));
  }

  absl::Status ReadModules() {
    ASSIGN_OR_RETURN(excluded_, ReadSet("exclude_modules"));
    ASSIGN_OR_RETURN(const ModuleSet saved, ReadSet("modules_to_save"));
    for (const std::string& name : saved.names()) {
      auto pattern = ModulePattern::Parse(
          absl::StrCat("(?:^|.*\\.)(?:", name, ")(?:$|\\..*)"));
      if (!pattern.ok()) {
        return Refuse(absl::StrCat("modules_to_save: ",
                                   std::string(pattern.status().message())));
      }
      saved_.push_back(*std::move(pattern));
    }
    ASSIGN_OR_RETURN(rank_patterns_, ReadPatterns("rank_pattern"));
    ASSIGN_OR_RETURN(alpha_patterns_, ReadPatterns("alpha_pattern"));
    RETURN_IF_ERROR(ReadLayers());
    const json targets = Value("target_modules");
    // PEFT's word for all linear layers except the head.
    if (targets.is_string() &&
        absl::AsciiStrToLower(targets.get<std::string>()) == "all-linear") {
      ASSIGN_OR_RETURN(targets_,
                       ModuleSet::Parse(json(ProjectionNames(model_))));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(targets_, ReadSet("target_modules"));
    if (!targets_.IsExpression() && targets_.names().empty()) {
      return Refuse(absl::StrCat("target_modules is ",
                                 targets.dump(),
                                 "; it must name projections, such as q_proj"));
    }
    return CheckTargets();
  }

  absl::Status ReadLayers() {
    const json layers = Value("layers_to_transform");
    if (IsNeutral(layers)) return absl::OkStatus();
    if (Value("target_modules").is_string()) {
      return Refuse("layers_to_transform does not go with an expression");
    }
    layers_.emplace();
    for (const json& layer :
         layers.is_array() ? layers : json::array({layers})) {
      const auto number = JsonInteger(layer, 0, model_.num_layers - 1);
      if (!number.ok()) {
        return Refuse(absl::StrCat("layers_to_transform: ",
                                   std::string(number.status().message())));
      }
      layers_->insert(*number);
    }
    const json patterns = Value("layers_pattern");
    if (IsNeutral(patterns) || patterns == "") {
      ASSIGN_OR_RETURN(ModulePattern any,
                       ModulePattern::Parse(".*?\\.[^.]*\\.(\\d+)\\."));
      layer_numbers_.push_back(std::move(any));
      return absl::OkStatus();
    }
    for (const json& pattern :
         patterns.is_array() ? patterns : json::array({patterns})) {
      const auto parsed =
          pattern.is_string()
              ? ModulePattern::Parse(absl::StrCat("(?:^|.*?\\.)(?:",
                                                  pattern.get<std::string>(),
                                                  ")\\.(\\d+)\\."))
              : absl::InvalidArgumentError("is no text");
      if (!parsed.ok()) {
        return Refuse(absl::StrCat("layers_pattern: ",
                                   std::string(parsed.status().message())));
      }
      layer_numbers_.push_back(*parsed);
    }
    return absl::OkStatus();
  }

  // Fails for a target that only PEFT adapts.
  absl::Status CheckTargets() const {
    for (const char* other : {"lm_head", "model.embed_tokens", "model.norm"}) {
      if (!targets_.Contains(other) || IsExcluded(other)) continue;
      return Refuse(absl::StrCat("target_modules reaches '",
                                 other,
                                 "', which is no projection of its layers; ",
                                 kMergeInstead));
    }
    for (const std::string& name : targets_.names()) {
      const json alone = json::array({name});
      ASSIGN_OR_RETURN(const ModuleSet one, ModuleSet::Parse(alone));
      bool matches = false;
      for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
        for (const std::string& module : ModulesOf(layer)) {
          matches = matches || one.Contains(module);
        }
      }
      if (!matches) {
        return Refuse(absl::StrCat("target module '",
                                   name,
                                   "' is no projection of its layers; ",
                                   kMergeInstead));
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::string> ModulesOf(int64_t layer) const {
    std::vector<std::string> modules;
    for (const ProjectionRecipe& projection :
         LayerRecipeOf(model_, layer).projections) {
      modules.push_back(ModulePath(layer, projection.module));
    }
    return modules;
  }

  bool IsExcluded(const std::string& module) const {
    return excluded_.Contains(module) ||
           std::ranges::any_of(saved_, [&](const ModulePattern& pattern) {
             return pattern.Matches(module);
           });
  }

  bool IsTarget(const std::string& module) const {
    if (IsExcluded(module) || !targets_.Contains(module)) return false;
    // The whole names of a list select a module in every layer.
    if (!layers_.has_value() || targets_.HasWholeName(module)) return true;
    for (const ModulePattern& pattern : layer_numbers_) {
      const int64_t number = pattern.NumberInBeginning(module);
      if (number >= 0) return layers_->contains(number);
    }
    return false;
  }

  // rank_pattern or alpha_pattern: pairs of a module pattern and its value.
  using Patterns = std::vector<std::pair<ModulePattern, json>>;

  absl::StatusOr<Patterns> ReadPatterns(const char* key) const {
    const json values = Value(key);
    Patterns patterns;
    if (IsNeutral(values)) return patterns;
    if (!values.is_object()) {
      return Refuse(absl::StrCat(key, " is not an object"));
    }
    for (const auto& [expression, value] : values.items()) {
      auto pattern =
          ModulePattern::Parse(absl::StrCat("(?:.*\\.)?(?:", expression, ")"));
      if (!pattern.ok()) {
        return Refuse(
            absl::StrCat(key, ": ", std::string(pattern.status().message())));
      }
      patterns.emplace_back(*std::move(pattern), value);
    }
    return patterns;
  }

  // Returns null if no pattern matches the module.
  absl::StatusOr<json> ValueOf(const Patterns& patterns,
                               const char* key,
                               const std::string& module) const {
    json found;
    for (const auto& [pattern, value] : patterns) {
      if (!pattern.Matches(module)) continue;
      // PEFT takes the first match in the file.
      if (!found.is_null() && found != value) {
        return Refuse(absl::StrCat(
            key, " has two values for ", module, "; remove one of them"));
      }
      found = value;
    }
    return found;
  }

  absl::StatusOr<PeftModule> ModuleOf(const std::string& module) const {
    PeftModule found{.rank = rank_, .alpha = alpha_};
    ASSIGN_OR_RETURN(const json rank,
                     ValueOf(rank_patterns_, "rank_pattern", module));
    ASSIGN_OR_RETURN(const json alpha,
                     ValueOf(alpha_patterns_, "alpha_pattern", module));
    if (!rank.is_null()) {
      ASSIGN_OR_RETURN(found.rank, ReadRank(rank, "rank_pattern"));
    }
    if (!alpha.is_null()) {
      ASSIGN_OR_RETURN(found.alpha, ReadAlpha(alpha, "alpha_pattern"));
    }
    if (divides_by_root_) {
      found.alpha *= std::sqrt(static_cast<double>(found.rank));
    }
    return found;
  }

  absl::Status Unify(PeftConfig* peft) const {
    const PeftModule* strongest = nullptr;
    std::set<std::string> targets;
    peft->lora.rank = 0;
    for (size_t layer = 0; layer < peft->layers.size(); ++layer) {
      const LayerRecipe recipe =
          LayerRecipeOf(model_, static_cast<int64_t>(layer));
      for (const Projection projection : recipe.All()) {
        const auto& module = peft->layers[layer][IndexOf(projection)];
        if (!module.has_value()) continue;
        targets.emplace(recipe[projection].name);
        peft->lora.rank = std::max(peft->lora.rank, module->rank);
        if (strongest == nullptr ||
            std::abs(module->scale()) > std::abs(strongest->scale())) {
          strongest = &*module;
        }
      }
    }
    if (strongest == nullptr) {
      return Refuse("target_modules matches no projection of this model");
    }
    for (const std::string& name : ProjectionNames(model_)) {
      if (targets.contains(name)) peft->lora.targets.push_back(name);
    }
    peft->lora.alpha =
        peft->lora.rank == strongest->rank
            ? strongest->alpha
            : strongest->scale() * static_cast<double>(peft->lora.rank);
    if (std::abs(peft->lora.alpha) > kMaxLoraAlpha) {
      return Refuse(absl::StrCat("its scale comes to an alpha above ",
                                 kMaxLoraAlpha,
                                 "; ",
                                 kMergeInstead));
    }
    return absl::OkStatus();
  }

  const json& config_;
  const ModelConfig& model_;
  const std::string where_;
  int64_t rank_ = 0;
  double alpha_ = 0.0;
  bool divides_by_root_ = false;
  ModuleSet targets_;
  ModuleSet excluded_;
  std::vector<ModulePattern> saved_;
  std::optional<std::set<int64_t>> layers_;
  std::vector<ModulePattern> layer_numbers_;
  Patterns rank_patterns_;
  Patterns alpha_patterns_;
};

}  // namespace

absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text,
                                           const ModelConfig& model,
                                           const std::string& where) {
  ASSIGN_OR_RETURN(const json config, ParseJson(text, where));
  return Parser(config, model, where).Parse();
}

absl::StatusOr<PeftConfig> ReadPeftConfig(const std::string& folder,
                                          const ModelConfig& model) {
  const std::string path = JoinPath(folder, "adapter_config.json");
  auto text = ReadFile(path, kMaxAdapterConfigBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kData);
  return ParsePeftConfig(*text, model, path);
}

absl::Status CheckStartAdapter(const std::string& folder,
                               const PeftConfig& adapter,
                               const LoraSection& settings) {
  const LoraConfig& lora = adapter.lora;
  const std::vector<std::string>& targets = lora.targets;
  std::vector<std::string> fitting;
  if (lora.rank != settings.rank) {
    fitting.push_back(absl::StrCat("lora.rank=", lora.rank));
  }
  if (lora.alpha != settings.alpha) {
    // The value gets all digits, because the user has to repeat it exactly.
    fitting.push_back(absl::StrCat("lora.alpha=", FormatDouble(lora.alpha)));
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

}  // namespace dapd
