// Reads tokenizer_config.json of a model folder: the special tokens by their
// roles, tokens besides those of tokenizer.json, and the chat template if it
// has no file of its own. transformers before 4.34 wrote no
// added_tokens_decoder into it. For such folders special_tokens_map.json is
// read, too, and takes precedence, as in transformers.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/json.h"

namespace dapd {

struct TokenizerConfig {
  std::string path;
  // The special tokens' texts by key: "bos_token", "eos_token", ..., other keys
  // that end in "_token", and names in "extra_special_tokens". Templates know
  // the tokens by these names. A key that is absent or null is not in the map.
  std::map<std::string, std::string> special_tokens;
  // "added_tokens_decoder" in the form of the list "added_tokens" of
  // tokenizer.json, by ascending id.
  nlohmann::json added_tokens = nlohmann::json::array();
  // The tokens of `special_tokens`, and the tokens that "extra_special_tokens"
  // or "additional_special_tokens" list without names. They have the form of
  // added_tokens without ids, and the order in which transformers adds new
  // ones.
  nlohmann::json named_tokens = nlohmann::json::array();
  nlohmann::json unnamed_tokens = nlohmann::json::array();
  std::string chat_template;  // empty if the file has none
  // Whether the special tokens in a text are encoded like any other text.
  bool split_special_tokens = false;
};

// A missing file counts as an empty one. Returns an error with exit code kData
// if a file is not a JSON object, or if added_tokens_decoder does not map ids
// to tokens.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder);

}  // namespace dapd
