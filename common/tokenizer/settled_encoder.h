// SettledEncoder tokenizes a text while it is being written, each piece once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/tokenizer/tokenizer.h"

namespace dapd {

// Not thread-safe.
class SettledEncoder {
 public:
  // `tokenizer` must outlive the encoder.
  explicit SettledEncoder(const Tokenizer& tokenizer)
      : tokenizer_(&tokenizer) {}

  // Appends `text`, which must be well-formed UTF-8. Tokenizes the part whose
  // tokens later text cannot change: up to the last space behind a printable
  // ASCII character, or the last line that begins with a letter. The
  // pre-tokenizers of all known byte-level models split a text at these places.
  // With another pre-tokenizer the tokens may differ from the tokens of the
  // whole text.
  absl::Status Append(absl::string_view text);

  // Returns the tokens so far.
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // text that is not tokenized yet
  std::vector<int32_t> ids_;
};

}  // namespace dapd
