// Small problems with worked reference solutions, for demonstrations and tests.
//
// Deterministic: the same task, split and seed give the same problems on every
// machine. The two splits share no problem: a problem's text decides to which
// one it belongs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/dataset.h"

namespace dapd {

enum class ProblemSplit { kTrain, kHeldOut };

// The names of all tasks: "unit_conversion", ...
std::vector<std::string> ProblemTasks();

// `count` different problems. INVALID_ARGUMENT for an unknown task, or if the
// task does not have that many.
absl::StatusOr<std::vector<Problem>> GenerateProblems(const std::string& task,
                                                      ProblemSplit split,
                                                      int64_t count,
                                                      uint64_t seed);

}  // namespace dapd
