// RandomName: what nobody else is called, and nobody guesses.
#pragma once

#include <string>

namespace dapd {

// 32 hex digits, from the system's source of randomness.
std::string RandomName();

}  // namespace dapd
