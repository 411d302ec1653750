// The lines of metrics.jsonl, one a step, as StepLine
// (common/training/metric_table.h) writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/json.h"

namespace dapd {

// Calls `take` with each whole line and its step, in their order, until it
// returns an error; not at all without the file. A line that a crash cut off is
// left out, and so are damaged ones: those that are no step's, and those on
// which `take` throws JSON's exceptions. A warning names the first of them; the
// result is how many there are.
absl::StatusOr<int64_t> ForEachStepLine(
    const std::string& path,
    const std::function<
        absl::Status(int64_t step, const nlohmann::ordered_json& line)>& take);

}  // namespace dapd
