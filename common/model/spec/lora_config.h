// What adapter_config.json says: the settings of a LoRA adapter (Hu et al.
// 2021) as PEFT writes them, as far as this program computes them.
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
  // Each once, in the order of AllProjections; empty: all seven.
  std::vector<Projection> targets;
  double scale() const { return alpha / static_cast<double>(rank); }
};

// CONFIG error for an unknown name among lora.targets.
absl::StatusOr<LoraConfig> MakeLoraConfig(const LoraSection& section);

// Refused by name: not LORA, an alpha beyond kMaxLoraAlpha, DoRA,
// modules_to_save, rank or alpha patterns, a bias, fan_in_fan_out, one that is
// active behind certain tokens only or that began with a part of the base's
// weights (PiSSA, OLoRA), a target that is none of the seven projections.
// `where` leads every message.
absl::StatusOr<LoraConfig> ParseLoraConfig(const std::string& text,
                                           const std::string& where);

// Whether a run with these settings can train on from the PEFT adapter in
// `folder` (lora.start_from): its rank, alpha and targets have to be the
// settings'. Exit code kConfig, with every setting that would make it fit;
// kData where its adapter_config.json cannot be used at all.
absl::Status CheckStartAdapter(const std::string& folder,
                               const LoraSection& settings);

// ParseLoraConfig of it gives `lora` back. `base_model_path`, as BaseModelName
// (common/hub/model_folder.h) has it, becomes base_model_name_or_path; the
// revision of an id on the hub becomes PEFT's own field for it.
std::string FormatLoraConfig(const LoraConfig& lora,
                             const std::string& base_model_path);

}  // namespace dapd
