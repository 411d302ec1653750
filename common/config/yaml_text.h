// Numbers and texts in the syntax of YAML.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace dapd {

std::string FormatDouble(double value);
// Parses a finite number or .inf. False for any other text.
bool ParseDouble(const std::string& text, double* value);
// Returns any text in double quotes, on one line.
std::string Quote(const std::string& text);
// Returns a list in one line: [a, b], with the text that `format` gives for
// each item.
template <typename List, typename Format>
std::string FormatList(const List& list, Format format) {
  std::vector<std::string> parts;
  for (const auto& item : list) parts.push_back(format(item));
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}
// Returns the argument of --set that gives `key` this text: key="text".
std::string TextOverride(const std::string& key, const std::string& text);

}  // namespace dapd
