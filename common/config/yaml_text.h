// Numbers and texts as YAML has them.
#pragma once

#include <string>

namespace dapd {

std::string FormatDouble(double value);
// The other way round: a finite number, or .inf. False for anything else.
bool ParseDouble(const std::string& text, double* value);
// In double quotes and on one line, whatever it holds.
std::string Quote(const std::string& text);
// What gives `key` this text as an argument of --set: key="text".
std::string TextOverride(const std::string& key, const std::string& text);

}  // namespace dapd
