// The lines of `dapd check` on a configuration's objective.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/load_config.h"
#include "common/data/dataset.h"

namespace dapd {

// Returns lines with the preset, the other keys that have its values, and the
// roles that it does not need, and the further teachers that it asks.
std::vector<std::string> PresetText(const LoadedConfig& loaded);

// Returns one line with the number of a step's answers and their reference, and
// with the share of the steps that have no answers (step_kind.h).
std::string AnswersOfStepText(const Config& config);

// Returns one line with the number of rows of each teacher, for data whose rows
// name their teachers (data.teacher_column).
std::string RowTeachersText(const Dataset& data);

// Returns lines with a heading, each term, and the sum of their weights.
std::vector<std::string> TermsText(const ObjectiveSection& objective);

}  // namespace dapd
