// The lines of `dapd check` on a configuration's objective.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/load_config.h"

namespace dapd {

// Returns lines with the preset, the other keys that have its values, and the
// roles that it does not need.
std::vector<std::string> PresetText(const LoadedConfig& loaded);

// Returns one line with the number of a step's answers and their reference.
std::string AnswersOfStepText(const Config& config);

// Returns lines with a heading, each term, and the sum of their weights.
std::vector<std::string> TermsText(const ObjectiveSection& objective);

}  // namespace dapd
