// A trainer's status as JSON, with the proto's names: what `dapd status --json`
// prints and the trainer's /status.json serves.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dapd/v1/trainer.pb.h"

namespace dapd {

nlohmann::ordered_json StatusJson(const v1::GetStatusResponse& status);

}  // namespace dapd
