// The meaning of an adapter_config.json for a model: the modules that PEFT
// would adapt, each with its rank and scale, and the adapter of one rank and
// scale that holds them all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/spec/lora_config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct PeftModule {
  int64_t rank = 0;
  double alpha = 0.0;  // PEFT multiplies by scale()
  double scale() const { return alpha / static_cast<double>(rank); }
};

struct PeftConfig {
  // The largest rank, the largest scale, and every projection that is adapted
  // in any layer. A module of a smaller rank is filled with zeros, the B of a
  // module of another scale is multiplied by the quotient of both scales, and a
  // module that is not adapted is zero.
  LoraConfig lora;
  // By layer and projection; nothing for a projection that PEFT does not adapt.
  std::vector<std::vector<std::optional<PeftModule>>> layers;
  // base_model_name_or_path; empty if absent.
  std::string base;
};

// Reads the text like PEFT: target_modules as a list or a regular expression,
// exclude_modules, layers_to_transform, rank_pattern, alpha_pattern and
// use_rslora. Refuses by name: a type other than LORA, an alpha beyond
// kMaxLoraAlpha, DoRA, a bias, fan_in_fan_out, an adapter that is active behind
// certain tokens only or that began with a part of the base's weights (PiSSA,
// OLoRA), a target that is no projection of the layers, an expression that
// ModulePattern refuses, and every setting that might change the result.
// `where` leads every message.
absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text,
                                           const ModelConfig& model,
                                           const std::string& where);

// Reads the file in a PEFT folder by ParsePeftConfig; exit code kData.
absl::StatusOr<PeftConfig> ReadPeftConfig(const std::string& folder,
                                          const ModelConfig& model);

// Checks that a run with these settings can continue to train an adapter
// (lora.start_from): its rank, alpha and targets must equal the settings. Exit
// code kConfig, with every setting that would make the adapter fit. `folder` is
// for the message.
absl::Status CheckStartAdapter(const std::string& folder,
                               const PeftConfig& adapter,
                               const LoraSection& settings);

}  // namespace dapd
