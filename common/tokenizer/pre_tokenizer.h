// Pre-tokenisers: cut text into the words inside which BPE merges.
//
// The regular expressions of the known families are recognised by their exact
// text and run as hand-written scanners: RE2 and std::regex cannot express
// their look-ahead, and a scanner is several times faster. Another expression
// is refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/tokenizer/unicode_text.h"

namespace dapd {

// A run of code points [begin, end).
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// Immutable; thread-safe.
class PreTokenizer {
 public:
  enum class Rule {
    kQwen,         // Qwen2, Qwen2.5, Qwen3: single digits
    kLlama3,       // Llama 3: digits in threes
    kTekken,       // Mistral from Nemo on: single digits, cuts aB
    kGpt2,         // ByteLevel with use_regex
    kSingleDigits  // Digits with individual_digits
  };

  // From the "pre_tokenizer" of tokenizer.json, whose last part is ByteLevel;
  // INVALID_ARGUMENT names what is not supported.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json& json);

  // The words of `points`, in order, without gaps. Each rule cuts every piece
  // that the rules before it left, seeing nothing outside that piece.
  std::vector<Span> Split(const std::vector<CodePoint>& points) const;

 private:
  std::vector<Rule> rules_;
};

}  // namespace dapd
