// A trainer's status as JSON, with the names of the proto: the output of `dapd
// status --json` and of the trainer's /status.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dapd/v1/trainer.pb.h"

namespace dapd {

nlohmann::ordered_json StatusJson(const v1::GetStatusResponse& status);

}  // namespace dapd
