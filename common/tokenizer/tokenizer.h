// Byte-level BPE tokenizer, exact against Hugging Face `tokenizers`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Immutable once loaded; thread-safe.
class Tokenizer {
 public:
  // Reads tokenizer.json of a model folder, and of tokenizer_config.json the
  // added tokens, the special ones and pad_id. A normaliser, pre-tokeniser,
  // decoder or model setting that is not implemented is refused by name, as is
  // an added token to which `tokenizers` would give another id than the file.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(
      const std::string& folder);
  virtual ~Tokenizer() = default;

  // Added tokens written in the text are recognised as such; no token is added
  // (no beginning-of-sequence). INVALID_ARGUMENT for ill-formed UTF-8.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const = 0;

  // Bytes that form no valid UTF-8 become U+FFFD, as in `tokenizers`.
  // OUT_OF_RANGE for an id that the vocabulary does not have.
  virtual absl::StatusOr<std::string> Decode(
      const std::vector<int32_t>& ids, bool skip_special_tokens) const = 0;

  // The number of ids with a token: ids at or above it (padding rows of the
  // embedding) must be masked when sampling.
  virtual int32_t size() const = 0;
  // -1 if there is no such token.
  virtual int32_t TokenId(absl::string_view token) const = 0;
  // True for an added token, be it special or not.
  virtual bool IsAdded(int32_t id) const = 0;
  // True for an added token flagged special.
  virtual bool IsSpecial(int32_t id) const = 0;
  // What stands for padding: the pad token that tokenizer_config.json names or,
  // if it names none, its end token. Nothing if it names neither; -1 if the
  // vocabulary does not have that token.
  virtual std::optional<int32_t> pad_id() const = 0;
  // The end token that tokenizer_config.json names, in the same way.
  virtual std::optional<int32_t> end_id() const = 0;
};

}  // namespace dapd
