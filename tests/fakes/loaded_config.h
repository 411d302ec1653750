// Has a valid configuration, loads a configuration from a text, and returns the
// error for an invalid one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/config/load_config.h"
#include "tests/fakes/temp_path.h"

namespace dapd {

inline constexpr char kGood[] = R"(model:
  path: some/model
trainer:
  learning_rate: 1e-5
  steps: 20
objective:
  reference_guided: {beta_inference: 0.5}
)";

inline absl::StatusOr<LoadedConfig> Load(
    const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const std::string path = TempPath("config.yaml");
  EXPECT_TRUE(WriteFileAtomically(path, yaml).ok());
  return LoadConfig(path, overrides);
}

inline std::string Message(const absl::StatusOr<LoadedConfig>& loaded) {
  EXPECT_EQ(ExitCodeOf(loaded.status()), ExitCode::kConfig);
  return std::string(loaded.status().message());
}

// Returns the error for `overrides` of the valid file; empty if they are
// accepted.
inline std::string Refusal(const std::vector<std::string>& overrides) {
  const auto loaded = Load(kGood, overrides);
  return loaded.ok() ? "" : Message(loaded);
}

}  // namespace dapd
