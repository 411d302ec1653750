// SettledEncoder: the tokens of a text that is still being written, each piece
// of which is tokenized once.
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
  // `tokenizer` must outlive it.
  explicit SettledEncoder(const Tokenizer& tokenizer)
      : tokenizer_(&tokenizer) {}

  // Goes on with `text`, well-formed UTF-8. Tokenizes as far as what follows
  // cannot change the tokens any more: up to the last space behind a printable
  // character of ASCII, or the last line that begins with a letter, where the
  // pre-tokenizers of all known byte-level models cut a text. With another
  // pre-tokenizer the tokens may differ from those of the whole text.
  absl::Status Append(absl::string_view text);

  // The tokens so far.
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // text that is not tokenized yet
  std::vector<int32_t> ids_;
};

}  // namespace dapd
