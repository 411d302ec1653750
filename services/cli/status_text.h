// A trainer's status as text for a terminal and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "dapd/v1/trainer.pb.h"

namespace dapd {

// One screen, lines ended by '\n'.
std::string StatusText(const v1::GetStatusResponse& status);

// The fields of GetStatusResponse by their proto names, numbers as numbers.
nlohmann::ordered_json StatusJson(const v1::GetStatusResponse& status);

}  // namespace dapd
