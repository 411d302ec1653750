// Values as YAML text, as the merged configuration has them.
#pragma once

#include <string>

namespace dapd {

std::string FormatDouble(double value);
std::string Quote(const std::string& text);

}  // namespace dapd
