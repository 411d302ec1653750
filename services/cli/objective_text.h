// What `dapd check` says of what a configuration trains.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/load_config.h"

namespace dapd {

// Lines: the preset, which other keys have its values, and of whom it asks
// nothing.
std::vector<std::string> PresetText(const LoadedConfig& loaded);

// One line: how many answers a step has, and what their reference is.
std::string AnswersOfStepText(const Config& config);

// Lines: a heading, each term, and the sum of their weights.
std::vector<std::string> TermsText(const ObjectiveSection& objective);

}  // namespace dapd
