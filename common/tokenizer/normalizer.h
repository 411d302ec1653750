// Normalizer changes a text before it is split into words, as "normalizer" of
// tokenizer.json says.
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
  // Supports null, NFC, NFD, NFKC, NFKD, Lowercase, Strip, Replace, Prepend and
  // a Sequence of these. Returns INVALID_ARGUMENT that names any other type.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json& json);

  // `text` must be well-formed. Returns RESOURCE_EXHAUSTED if a regular
  // expression takes too much time or memory for it.
  absl::StatusOr<std::string> Apply(absl::string_view text) const;

 private:
  using Step = std::function<absl::StatusOr<std::string>(const std::string&)>;

  absl::Status Add(const nlohmann::json& json);

  std::vector<Step> steps_;
};

}  // namespace dapd
