// Numbers and texts in the syntax of YAML.
#pragma once

#include <string>

namespace dapd {

std::string FormatDouble(double value);
// Parses a finite number or .inf. False for any other text.
bool ParseDouble(const std::string& text, double* value);
// Returns any text in double quotes, on one line.
std::string Quote(const std::string& text);
// Returns the argument of --set that gives `key` this text: key="text".
std::string TextOverride(const std::string& key, const std::string& text);

}  // namespace dapd
