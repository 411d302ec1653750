// A trainer's status as one screen of text.
#pragma once

#include <string>

#include "dapd/v1/trainer.pb.h"

namespace dapd {

std::string StatusText(const v1::GetStatusResponse& status);

}  // namespace dapd
