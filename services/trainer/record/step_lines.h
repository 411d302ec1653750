// Reads metrics.jsonl, which has a line for each step, from StepLine
// (common/training/metric_table.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/json.h"

namespace dapd {

// Calls `take` with each whole line and its step, in order, until it returns an
// error; not at all without the file. Leaves out a line that a crash cut off
// and damaged lines: lines of no step, and lines on which `take` throws JSON's
// exceptions. A warning names the first damaged line; the result is their
// number.
absl::StatusOr<int64_t> ForEachStepLine(
    const std::string& path,
    const std::function<
        absl::Status(int64_t step, const nlohmann::ordered_json& line)>& take);

}  // namespace dapd
