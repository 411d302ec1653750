// The settings of a LoRA adapter (Hu et al. 2021) that this program trains, and
// their form in PEFT. peft_config.h reads PEFT's own settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// The limit of lora.alpha as well: single precision holds the scale of a
// weight.
inline constexpr double kMaxLoraAlpha = 1e6;

// Advice in messages about an adapter that only PEFT computes.
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

// Returns a CONFIG error for a name in lora.targets that is no projection of
// `model`.
absl::StatusOr<LoraConfig> MakeLoraConfig(const LoraSection& section,
                                          const ModelConfig& model);

// Returns the targets of `lora`, or all projections of `model` if it names
// none.
std::vector<std::string> TargetsOf(const LoraConfig& lora,
                                   const ModelConfig& model);

// Returns the text from which ParsePeftConfig reads `lora` again.
// `base_model_path`, in the form of BaseModelName (common/hub/model_folder.h),
// becomes base_model_name_or_path; the revision of an id on the hub gets PEFT's
// own field.
std::string FormatLoraConfig(const LoraConfig& lora,
                             const std::string& base_model_path);

}  // namespace dapd
