// Bounds the tokens that a row's own material adds to any view: its messages,
// its tools and its columns beside problem and reference. A conversation is
// rendered once, however many checks of a start ask about it.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "absl/status/statusor.h"

#include "common/data/dataset.h"
#include "common/data/row_material.h"
#include "common/data/view_builder.h"

namespace dapd {

// Not thread-safe. Knows a row by its RowMaterial, which each row has for
// itself; what it was asked about must not be freed while others are asked.
class MaterialMeter {
 public:
  // `builder` must outlive it.
  explicit MaterialMeter(const ViewBuilder& builder) : builder_(builder) {}

  // Returns an upper bound on the tokens of the row's conversation
  // (ViewBuilder::MostConversationTokens), or the template's error; 0 for a row
  // without material.
  absl::StatusOr<int64_t> ConversationTokens(const Problem& problem);

  // Returns an upper bound for all of the material; 0 for a row without any.
  // An error (exit code kData) names the row.
  absl::StatusOr<int64_t> MostTokens(const Problem& problem);

 private:
  const ViewBuilder& builder_;
  std::unordered_map<const RowMaterial*, int64_t> conversations_;
};

}  // namespace dapd
