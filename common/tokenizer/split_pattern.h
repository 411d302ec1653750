// SplitPattern finds the places at which a text is split, as "pattern" of a
// Split or a Replace in tokenizer.json says: by a fixed text, or by a regular
// expression of Oniguruma.
//
// The expressions of the largest model families are recognised by their exact
// text and run as hand-written scanners, which are several times faster. Other
// expressions run in ICU if their meaning is certainly the same there.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/tokenizer/unicode_text.h"

namespace dapd {

// Describes a run of code points [begin, end).
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// Immutable; thread-safe.
class SplitPattern {
 public:
  // Reads {"String": ...} or {"Regex": ...}. Returns INVALID_ARGUMENT that
  // names the unsupported part of an expression.
  static absl::StatusOr<std::unique_ptr<const SplitPattern>> Parse(
      const nlohmann::json& json);
  virtual ~SplitPattern() = default;

  // Returns the matches within `piece`, from left to right, without looking
  // outside the piece. Returns RESOURCE_EXHAUSTED if an expression exhausts its
  // stack.
  virtual absl::StatusOr<std::vector<Span>> Matches(
      const std::vector<CodePoint>& points, Span piece) const = 0;
};

// Returns the expression of ByteLevel with use_regex, which is GPT-2's.
const SplitPattern& ByteLevelPattern();

}  // namespace dapd
