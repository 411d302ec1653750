// tokenizer_config.json of a model folder: the special tokens by their roles,
// and the chat template where no file of its own holds it.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

struct TokenizerConfig {
  std::string path;
  // Texts by key ("bos_token", "eos_token", "pad_token", ...); a key that is
  // absent or null is not here.
  std::map<std::string, std::string> special_tokens;
  std::string chat_template;  // empty: none here
};

// A folder without the file has the empty configuration. An exit code of the
// data if the file is no JSON object.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder);

}  // namespace dapd
