// The settings of a LoRA adapter (Hu et al. 2021) as this program trains one,
// and how they are written for PEFT. How PEFT's own are read: peft_config.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// The most that lora.alpha may be as well: single precision holds what a weight
// is scaled by.
inline constexpr double kMaxLoraAlpha = 1e6;

// The way out, in messages, for an adapter that only PEFT computes.
inline constexpr char kMergeInstead[] =
    "let PEFT merge such an adapter into its base (merge_and_unload) and take "
    "the result as the model";

struct LoraConfig {
  int64_t rank = 64;
  double alpha = 128.0;
  // Names of projections, each once, in the order of ProjectionNames
  // (layer_recipe.h); empty: all.
  std::vector<std::string> targets;
  double scale() const { return alpha / static_cast<double>(rank); }
};

// CONFIG error for a name among lora.targets that is no projection of `model`.
absl::StatusOr<LoraConfig> MakeLoraConfig(const LoraSection& section,
                                          const ModelConfig& model);

// The targets of `lora`; all projections of `model` where it names none.
std::vector<std::string> TargetsOf(const LoraConfig& lora,
                                   const ModelConfig& model);

// The lora of a ParsePeftConfig of it is `lora`. `base_model_path`, as
// BaseModelName (common/hub/model_folder.h) has it, becomes
// base_model_name_or_path; the revision of an id on the hub becomes PEFT's own
// field for it.
std::string FormatLoraConfig(const LoraConfig& lora,
                             const std::string& base_model_path);

}  // namespace dapd
