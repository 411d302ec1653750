// Whether the files of a PEFT adapter hold what its configuration says, for a
// model, by their names and shapes. Includes nothing of LibTorch, so that
// commands that compute nothing can ask.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/peft_config.h"
#include "common/tensor/safetensors.h"

namespace dapd {

inline constexpr char kAdapterTensorFile[] = "adapter_model.safetensors";
// In front of the base's names; what follows them.
inline constexpr char kAdapterPrefix[] = "base_model.model.";
inline constexpr char kLoraA[] = ".lora_A.weight";
inline constexpr char kLoraB[] = ".lora_B.weight";

using TensorEntries = std::map<std::string, SafetensorsEntry>;

// Reads the configuration of a PEFT directory for `model`, and checks its
// tensors. It refuses by name a configuration that ParsePeftConfig refuses,
// names with another prefix, a rank or shape that does not fit, a missing or an
// extra tensor. A copy of one of the base's tensors has to be the base's own,
// in every bit. Reads no values but of such copies. Exit code kData.
absl::StatusOr<PeftConfig> CheckAdapterFiles(const std::string& folder,
                                             const ModelConfig& model);

// The folder of lora.start_from, whose adapter fits the model and the settings;
// empty if a run starts from none. Exit code kData, or kConfig with the
// settings that would fit.
absl::StatusOr<std::string> FindStartAdapter(const LoraSection& lora,
                                             const ModelConfig& model);

// The part of CheckAdapterFiles that looks at an adapter's tensors. Returns the
// names, without PEFT's prefix, of copies of the base's tensors among them,
// whose values are not compared: save_pretrained adds the embedding and the
// head where it believes that they were trained, and modules_to_save adds what
// it names. `where` leads every message.
absl::StatusOr<std::vector<std::string>> CheckAdapterTensors(
    const PeftConfig& peft,
    const TensorEntries& entries,
    const ModelConfig& model,
    const std::string& where);

}  // namespace dapd
