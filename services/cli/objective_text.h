// The lines of `dapd check` on a configuration's objective.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/load_config.h"

namespace dapd {

// Lines: the preset, the other keys that have its values, and the roles that it
// does not need.
std::vector<std::string> PresetText(const LoadedConfig& loaded);

// One line: how many answers a step has, and what their reference is.
std::string AnswersOfStepText(const Config& config);

// Lines: a heading, each term, and the sum of their weights.
std::vector<std::string> TermsText(const ObjectiveSection& objective);

}  // namespace dapd
