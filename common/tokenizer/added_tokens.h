// Finds added tokens, such as "<|im_end|>" and "<think>", in a text before any
// other step of the tokenizer.
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
  std::string sought;        // text to search: `content`, normalised if
                             // `normalized`
  bool special = false;      // left out by Decode(skip_special_tokens)
  bool normalized = false;   // searched behind the normaliser
  bool lstrip = false;       // takes the white space before it with it
  bool rstrip = false;       // takes the white space behind it with it
  bool single_word = false;  // does not match next to a \w
};

// Immutable; thread-safe.
class AddedTokens {
 public:
  // Reads "added_tokens" of tokenizer.json. The normaliser is applied to the
  // tokens that are searched behind it, too. With `splits_special`, special
  // tokens are treated like any other text.
  static absl::StatusOr<AddedTokens> Parse(const nlohmann::json& json,
                                           const Normalizer& normalizer,
                                           bool splits_special);

  // Holds a piece of the text: an added token with the white space that it
  // takes, or the text between two added tokens.
  struct Piece {
    absl::string_view text;
    int32_t id = -1;  // -1 for text between tokens
  };
  // Returns the leftmost matches; the longest if several begin at the same
  // place. Searches only tokens with this `normalized` flag.
  std::vector<Piece> Split(absl::string_view text, bool normalized) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  // Holds indices in the order of AddedToken::sought.
  using Sorted = std::vector<size_t>;

  // Returns the longest of `candidates` with which `text` begins, and the first
  // in the file of several equal ones; null if there is none.
  const AddedToken* FindLongest(absl::string_view text,
                                const Sorted& candidates) const;

  bool splits_special_ = false;
  std::vector<AddedToken> tokens_;
  // This table is indexed by the `normalized` flag and the first byte.
  std::array<std::array<Sorted, 256>, 2> by_first_byte_;
};

}  // namespace dapd
