// YAML + environment + --set -> Config. Precedence: file < environment
// (DAPD_TRAINER__LEARNING_RATE) < overrides ("trainer.learning_rate=1e-5").
// The latter two are YAML as well; a text of which YAML would drop something,
// as it drops comments, is a mistake.
// Where none of them says anything, what objective.preset says, or the default.
// A file may begin with `extends: PATH`, relative to itself: what it does not
// say is then as in that file, which may extend another.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"

namespace dapd {

// The size of the largest configuration file that is read, and of the
// config.yaml in a run's folder.
inline constexpr uint64_t kMaxConfigBytes = 1 << 20;

struct LoadedConfig {
  Config config;
  // For each dotted key its origin: "default", "preset", "file:12",
  // "environment", "--set"; "qwen3-4b.yaml:7" of a file that was extended;
  // "trainer.machines" of ranks that follow from that. Written beside the
  // merged values into the run folder.
  std::map<std::string, std::string> origins;
};

// All mistakes at once, each with file:line, key, value and the nearest known
// key or the accepted range; exit code kConfig. Relative paths in the file are
// taken relative to the working directory.
absl::StatusOr<LoadedConfig> LoadConfig(
    const std::string& path, const std::vector<std::string>& overrides);

// The config.yaml that a run has written into its folder: what that run was,
// whatever the environment says now. Errors as LoadConfig.
absl::StatusOr<LoadedConfig> LoadWrittenConfig(const std::string& path);

// What can be read of the configuration, everything else as by default. For
// what has to be known in order to report the mistakes: how to log. Reports
// none itself.
Config PeekConfig(const std::string& path,
                  const std::vector<std::string>& overrides);

// The section `security` of the environment and of `overrides`, for commands
// that need no other. Errors as LoadConfig.
absl::StatusOr<SecuritySection> LoadSecurity(
    const std::vector<std::string>& overrides);

}  // namespace dapd
