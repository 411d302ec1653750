// Loads a configuration: YAML file + environment + --set -> Config. The
// environment (DAPD_TRAINER__LEARNING_RATE) overrides the file, and --set
// ("trainer.learning_rate=1e-5") overrides both. A key without a value in any
// of them gets the value of objective.preset, or its default. Values in the
// environment and in --set are YAML as well; a text of which YAML would drop a
// part, such as a comment, is an error. A file may begin with `extends: PATH`,
// relative to itself: it then contains only the differences to that file, which
// may extend another file.
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
  // The origin of each dotted key: "default", "preset", "file:12",
  // "environment", "--set"; "qwen3-4b.yaml:7" for an extended file;
  // "trainer.machines" for ranks that follow from that key. The run folder
  // records it beside the values.
  std::map<std::string, std::string> origins;
};

// Reports all mistakes at once, with exit code kConfig: file:line, key, value,
// and the nearest known key or the accepted range. Relative paths in the file
// are relative to the working directory.
absl::StatusOr<LoadedConfig> LoadConfig(
    const std::string& path, const std::vector<std::string>& overrides);

// Loads the config.yaml in the folder of a run: the configuration of that run,
// whatever the environment contains now. Returns the errors of LoadConfig.
absl::StatusOr<LoadedConfig> LoadWrittenConfig(const std::string& path);

// Returns the values that can be read, and the defaults of all other keys;
// reports no mistakes. It serves settings that are needed to report mistakes,
// such as the format of the log.
Config PeekConfig(const std::string& path,
                  const std::vector<std::string>& overrides);

// Returns the section `security` of the environment and of `overrides`, for
// commands that need no other section. Returns the errors of LoadConfig.
absl::StatusOr<SecuritySection> LoadSecurity(
    const std::vector<std::string>& overrides);

}  // namespace dapd
