// Implements a byte-level BPE tokenizer that equals Hugging Face `tokenizers`
// exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Immutable once loaded; thread-safe.
class Tokenizer {
 public:
  // Reads tokenizer.json of a model folder, and the added tokens, the special
  // tokens and pad_id of tokenizer_config.json. An error names a normaliser,
  // pre-tokeniser, decoder or model setting that is not implemented, or an
  // added token to which `tokenizers` would give another id than the file.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(
      const std::string& folder);
  virtual ~Tokenizer() = default;

  // Recognises added tokens that are written in the text, and adds no token (no
  // beginning-of-sequence). Returns INVALID_ARGUMENT for ill-formed UTF-8.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const = 0;

  // Bytes that are not valid UTF-8 become U+FFFD, as in `tokenizers`. Returns
  // OUT_OF_RANGE for an id that the vocabulary does not have.
  virtual absl::StatusOr<std::string> Decode(
      const std::vector<int32_t>& ids, bool skip_special_tokens) const = 0;

  // Returns the number of ids with a token. Sampling must mask the ids from it
  // on, which are padding rows of the embedding.
  virtual int32_t size() const = 0;
  // Returns -1 if there is no such token.
  virtual int32_t TokenId(absl::string_view token) const = 0;
  // Returns the bytes that `id` stands for; nothing if there is no such token.
  virtual std::optional<std::string> BytesOf(int32_t id) const = 0;
  // Returns the pairs of ids that are merged, in the order of their ranks.
  virtual std::vector<std::pair<int32_t, int32_t>> Merges() const = 0;
  // Returns true for an added token, whether it is special or not.
  virtual bool IsAdded(int32_t id) const = 0;
  // Returns true for an added token that is flagged as special.
  virtual bool IsSpecial(int32_t id) const = 0;
  // Returns the padding token: the pad token that tokenizer_config.json names
  // or, if it names none, its end token. Returns nothing if it names neither,
  // and -1 if the vocabulary does not have the token.
  virtual std::optional<int32_t> pad_id() const = 0;
  // Returns the end token that tokenizer_config.json names; nothing if it names
  // none, and -1 if the vocabulary does not have it.
  virtual std::optional<int32_t> end_id() const = 0;
};

}  // namespace dapd
