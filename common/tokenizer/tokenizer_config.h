// tokenizer_config.json of a model folder: the special tokens by their roles,
// tokens beside those of tokenizer.json, and the chat template where no file of
// its own holds it. Folders that transformers wrote before 4.34 have no
// added_tokens_decoder in it; of them special_tokens_map.json is read too, as
// transformers does, and wins.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/json.h"

namespace dapd {

struct TokenizerConfig {
  std::string path;
  // Texts by key ("bos_token", "eos_token", ..., and what else ends in "_token"
  // or is named in "extra_special_tokens"), which templates know by these
  // names; a key that is absent or null is not here.
  std::map<std::string, std::string> special_tokens;
  // "added_tokens_decoder", as a list like the "added_tokens" of
  // tokenizer.json, by rising ids.
  nlohmann::json added_tokens = nlohmann::json::array();
  // The tokens of `special_tokens`, and those that "extra_special_tokens" or
  // "additional_special_tokens" list without names: lists like that one,
  // without ids, in the order in which transformers adds what is new of them.
  nlohmann::json named_tokens = nlohmann::json::array();
  nlohmann::json unnamed_tokens = nlohmann::json::array();
  std::string chat_template;  // empty: none here
  // Whether a text's special tokens are encoded as any other text is.
  bool split_special_tokens = false;
};

// What a folder lacks counts as an empty file. An exit code of the data if a
// file is no JSON object, or added_tokens_decoder none of tokens by their ids.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder);

}  // namespace dapd
