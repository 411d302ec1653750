// SweepFile: the file of a sweep before it is expanded; sweep_plan.h shows an
// example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

using Overrides = std::vector<std::string>;  // "key=value", as for --set

constexpr size_t kMaxSweepRuns = 10000;

// One setting of the sweep; each seed makes a run of it.
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
  int64_t parallel = 0;  // 0: not given
  double memory_gib = 0.0;
};

// Exit code kConfig; an error names the line.
absl::StatusOr<SweepFile> ReadSweepFile(const std::string& path);

}  // namespace dapd
