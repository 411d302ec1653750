// Pre-tokenisers: cut text into the words inside which BPE merges.
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

// A text, and the words that it has been cut into so far: not empty, in order,
// perhaps with gaps where what was between them is left out.
struct CutText {
  std::string text;
  // The characters or, once they are written as bytes, the bytes, each with the
  // letter that stands for it.
  std::vector<CodePoint> points;
  std::vector<Span> words;

  // The bytes of a word, within `text`.
  absl::string_view Bytes(Span word) const {
    const size_t begin = points[word.begin].begin;
    return absl::string_view(text).substr(begin,
                                          points[word.end - 1].end - begin);
  }
};

// Immutable; thread-safe.
class PreTokenizer {
 public:
  // One part of it.
  class Step {
   public:
    virtual ~Step() = default;
    // Cuts every word once more, seeing nothing outside of it.
    virtual absl::Status Apply(CutText& cut) const = 0;
  };

  // From the "pre_tokenizer" of tokenizer.json, of which one part is ByteLevel:
  // Split, Punctuation, Digits, Whitespace, WhitespaceSplit,
  // CharDelimiterSplit, ByteLevel and a Sequence of these. INVALID_ARGUMENT
  // names another.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json& json);

  // INVALID_ARGUMENT for ill-formed UTF-8, RESOURCE_EXHAUSTED where a regular
  // expression takes too much for this text.
  absl::StatusOr<CutText> Split(absl::string_view text) const;

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace dapd
