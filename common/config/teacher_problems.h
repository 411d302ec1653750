// Checks `teachers`, and all places of a configuration that name one of them.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

// Returns all problems, each with its key: a name that is not usable, reserved
// or occurs twice, two teachers with the same address, a name that `teachers`
// lacks, a row's teacher without data.teacher_column, a payload from which the
// trainer could not compute another model's distribution.
std::vector<std::string> FindTeacherProblems(const Config& config);

}  // namespace dapd
