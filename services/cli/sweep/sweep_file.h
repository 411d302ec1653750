// What the file of a sweep says, before it is expanded: sweep_plan.h shows one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

using Overrides = std::vector<std::string>;  // "key=value", as for --set

constexpr size_t kMaxSweepRuns = 10000;

// One setting of the sweep, of which each seed makes a run.
struct SweepSetting {
  std::string name;
  Overrides overrides;
};

struct SweepFile {
  std::string name;
  std::string config;
  Overrides common;
  std::vector<SweepSetting> settings;
  std::vector<std::string> seeds;
  int64_t parallel = 0;  // not given
  double memory_gib = 0.0;
};

// Exit code kConfig; a mistake has its line.
absl::StatusOr<SweepFile> ReadSweepFile(const std::string& path);

}  // namespace dapd
