// SplitPattern: what cuts a text, as "pattern" of a Split or a Replace in
// tokenizer.json has it: a text that is looked for, or a regular expression of
// Oniguruma.
//
// The expressions of the largest families are recognised by their exact text
// and run as hand-written scanners, which are several times faster. Others run
// in ICU, once it is sure that they mean the same there.
#pragma once

#include <memory>
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
class SplitPattern {
 public:
  // {"String": ...} or {"Regex": ...}. INVALID_ARGUMENT names what of an
  // expression is not supported.
  static absl::StatusOr<std::unique_ptr<const SplitPattern>> Parse(
      const nlohmann::json& json);
  virtual ~SplitPattern() = default;

  // The matches within `piece`, from left to right, seeing nothing outside of
  // it. RESOURCE_EXHAUSTED where an expression runs out of its stack.
  virtual absl::StatusOr<std::vector<Span>> Matches(
      const std::vector<CodePoint>& points, Span piece) const = 0;
};

// The expression of ByteLevel with use_regex, GPT-2's.
const SplitPattern& ByteLevelPattern();

}  // namespace dapd
