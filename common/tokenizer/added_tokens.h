// Tokens that are recognised in the text before anything else is done to it,
// such as "<|im_end|>" and "<think>".
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/tokenizer/normalizer.h"

namespace dapd {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string sought;       // what of it the text holds, once normalised or not
  bool special = false;     // left out by Decode(skip_special_tokens)
  bool normalized = false;  // looked for after the normaliser
  bool lstrip = false;      // takes the white space before it with it
  bool rstrip = false;      // and that behind it
  bool single_word = false;  // is none next to a \w
};

// Immutable; thread-safe.
class AddedTokens {
 public:
  // From the "added_tokens" of tokenizer.json. The normaliser goes for the
  // tokens that are looked for after it as well. `splits_special`: special
  // tokens are text like any other.
  static absl::StatusOr<AddedTokens> Parse(const nlohmann::json& json,
                                           const Normalizer& normalizer,
                                           bool splits_special);

  // A piece of the text: an added token with the white space that it takes, or
  // the text between two.
  struct Piece {
    absl::string_view text;
    int32_t id = -1;  // -1: text between
  };
  // Leftmost match first, the longest where several begin. Looks for those
  // tokens whose `normalized` flag is as given.
  std::vector<Piece> Split(absl::string_view text, bool normalized) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  // Indices in the order of what is sought.
  using Sorted = std::vector<size_t>;

  // The longest of `candidates` that `text` begins with, the first in the file
  // of several alike; null if there is none.
  const AddedToken* FindLongest(absl::string_view text,
                                const Sorted& candidates) const;

  bool splits_special_ = false;
  std::vector<AddedToken> tokens_;
  // By normalized flag and first byte.
  std::array<std::array<Sorted, 256>, 2> by_first_byte_;
};

}  // namespace dapd
