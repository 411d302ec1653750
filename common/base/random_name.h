// RandomName: a name that is unique and cannot be guessed.
#pragma once

#include <string>

namespace dapd {

// Returns 32 hex digits, from the system's source of randomness.
std::string RandomName();

}  // namespace dapd
