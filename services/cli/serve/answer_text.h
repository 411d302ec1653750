// AnswerText: turns the tokens of an answer into text while they arrive.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/tokenizer/tokenizer.h"

namespace dapd {

// Not thread-safe.
class AnswerText {
 public:
  // The text ends before the first of `stops` in it. `tokenizer` must outlive
  // the object.
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : tokenizer_(&tokenizer), stops_(std::move(stops)) {}

  // Appends tokens, without the answer's end token. The text of all tokens is
  // what Tokenizer::Decode returns for them without special tokens. Returns
  // OUT_OF_RANGE for an id that the vocabulary does not have.
  absl::Status Append(const std::vector<int32_t>& ids);
  // No token follows: what was held back becomes text.
  absl::Status Finish();

  // Returns the text that is certain and was not taken before. Characters whose
  // bytes are not complete, and text that may be the beginning of a stop, are
  // held back.
  std::string Take();

  // Returns whether a stop was found; later tokens are ignored.
  bool stopped() const { return stopped_; }

 private:
  absl::Status Decode(bool is_end);
  // Looks for stops in the text that was not taken.
  void FindStop();
  // Returns how many bytes at the end of the text may begin a stop.
  size_t HeldBytes() const;

  const Tokenizer* tokenizer_;
  const std::vector<std::string> stops_;
  std::vector<int32_t> pending_;  // tokens that end within a character
  std::string untaken_;
  bool stopped_ = false;
  bool finished_ = false;
};

}  // namespace dapd
