// Generates small problems with worked reference solutions, for demonstrations
// and tests.
//
// The same task, split and seed give the same problems on every machine. The
// splits share no problem: the text of a problem decides to which split it
// belongs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/dataset.h"

namespace dapd {

enum class ProblemSplit { kTrain, kHeldOut };

// Returns the names of all tasks: "unit_conversion", ...
std::vector<std::string> ProblemTasks();

// Returns `count` different problems. Returns INVALID_ARGUMENT for an unknown
// task, or if the task does not have that many.
absl::StatusOr<std::vector<Problem>> GenerateProblems(const std::string& task,
                                                      ProblemSplit split,
                                                      int64_t count,
                                                      uint64_t seed);

}  // namespace dapd
