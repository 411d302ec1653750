// Reads the slices of a timeline's file for a test.
#pragma once

#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"

namespace dapd {

inline std::vector<nlohmann::json> SlicesOfTimeline(const std::string& path) {
  std::vector<nlohmann::json> slices;
  const auto trace = nlohmann::json::parse(ReadFile(path, 1 << 26).value());
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") slices.push_back(event);
  }
  return slices;
}

}  // namespace dapd
