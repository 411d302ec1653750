// Normalizer: what becomes of a text before it is cut into words, as the
// "normalizer" of tokenizer.json says.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Immutable; thread-safe.
class Normalizer {
 public:
  // null, NFC, NFD, NFKC, NFKD, Lowercase, Strip, Replace, Prepend and a
  // Sequence of these. INVALID_ARGUMENT names another.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json& json);

  // `text` must be well-formed. RESOURCE_EXHAUSTED if a regular expression
  // takes too much time or memory for it.
  absl::StatusOr<std::string> Apply(absl::string_view text) const;

 private:
  using Step = std::function<absl::StatusOr<std::string>(const std::string&)>;

  absl::Status Add(const nlohmann::json& json);

  std::vector<Step> steps_;
};

}  // namespace dapd
