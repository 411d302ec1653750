// Checks by names and shapes that the files of a PEFT adapter hold the tensors
// that its configuration describes for a model. Includes nothing of LibTorch,
// so that commands that compute nothing can use it.
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
// The prefix and the suffixes around the base's names.
inline constexpr char kAdapterPrefix[] = "base_model.model.";
inline constexpr char kLoraA[] = ".lora_A.weight";
inline constexpr char kLoraB[] = ".lora_B.weight";

using TensorEntries = std::map<std::string, SafetensorsEntry>;

// Reads the configuration of a PEFT directory for `model` and checks its
// tensors. Refuses by name: a configuration that ParsePeftConfig refuses, names
// with another prefix, a wrong rank or shape, a missing or an extra tensor, and
// a copy of one of the base's tensors that differs from the base's tensor in
// any bit. Reads no values but the values of such copies. Exit code kData.
absl::StatusOr<PeftConfig> CheckAdapterFiles(const std::string& folder,
                                             const ModelConfig& model);

// Returns the folder of lora.start_from, whose adapter fits the model and the
// settings; empty if the run starts from none. Exit code kData, or kConfig with
// the settings that would fit.
absl::StatusOr<std::string> FindStartAdapter(const LoraSection& lora,
                                             const ModelConfig& model);

// Checks an adapter's tensors for CheckAdapterFiles. Returns the names, without
// PEFT's prefix, of the tensors that are copies of the base's tensors, and does
// not compare their values: save_pretrained adds the embedding and the head if
// it believes that they were trained, and modules_to_save adds the modules that
// it names. `where` leads every message.
absl::StatusOr<std::vector<std::string>> CheckAdapterTensors(
    const PeftConfig& peft,
    const TensorEntries& entries,
    const ModelConfig& model,
    const std::string& where);

}  // namespace dapd
