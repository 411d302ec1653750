// Splits text into the words inside which BPE merges.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/tokenizer/split_pattern.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {

// Holds a text with the words into which it is split so far. The words are not
// empty and are in order; there are gaps where the text between words was
// removed.
struct CutText {
  std::string text;
  // The characters; behind ByteLevel the bytes, each with the letter that
  // stands for it.
  std::vector<CodePoint> points;
  std::vector<Span> words;

  // Returns the bytes of a word, within `text`.
  absl::string_view Bytes(Span word) const {
    const size_t begin = points[word.begin].begin;
    return absl::string_view(text).substr(begin,
                                          points[word.end - 1].end - begin);
  }
};

// Immutable; thread-safe.
class PreTokenizer {
 public:
  // Represents a step of the pre-tokenizer.
  class Step {
   public:
    virtual ~Step() = default;
    // Splits every word further, without looking outside the word.
    virtual absl::Status Apply(CutText& cut) const = 0;
  };

  // Reads "pre_tokenizer" of tokenizer.json. One of its parts must be
  // ByteLevel. The parts are Split, Punctuation, Digits, Whitespace,
  // WhitespaceSplit, CharDelimiterSplit, ByteLevel and a Sequence of these.
  // Returns INVALID_ARGUMENT that names any other part.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json& json);

  // Returns INVALID_ARGUMENT for ill-formed UTF-8, and RESOURCE_EXHAUSTED if a
  // regular expression takes too much time or memory for this text.
  absl::StatusOr<CutText> Split(absl::string_view text) const;

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace dapd
