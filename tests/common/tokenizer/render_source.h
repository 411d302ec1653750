// Loads chat templates from their source, as if from a model folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/tokenizer/chat_template.h"
#include "tests/fakes/temp_path.h"

namespace dapd {

inline absl::StatusOr<std::unique_ptr<const ChatTemplate>> LoadSource(
    const std::string& source) {
  const std::string folder = TempPath("model");
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(
      WriteFileAtomically(JoinPath(folder, "tokenizer_config.json"),
                          nlohmann::json{{"chat_template", source},
                                         {"eos_token", {{"content", "<end>"}}}}
                              .dump())
          .ok());
  return ChatTemplate::Load(folder);
}

// Renders two messages; returns the error if there is one.
inline std::string Render(const std::string& source,
                          const ChatRenderOptions& options = {}) {
  const auto loaded = LoadSource(source);
  if (!loaded.ok()) return std::string(loaded.status().message());
  const auto text =
      (*loaded)->Render({{"user", "Q"}, {"assistant", " A\n"}}, options);
  return text.ok() ? *text : std::string(text.status().message());
}

}  // namespace dapd
