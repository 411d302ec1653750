// The views of a sample (docs/objective.md, "Views"): one token sequence each,
// with the range of its tokens that is scored. Everything that names a view, in
// the configuration, on the wire and in a file, uses this table.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

enum class ViewName {
  kNoneRollout,
  kSelfRollout,
  kCrossRollout,
  kNoneReference,
  kSelfReference,
  kCrossReference,
  // The rollout behind SDFT's prompt, which shows the reference as an example
  // of an answer, and behind the reference without its problem (Purified OPSD).
  kDemonstrationRollout,
  kProbeRollout,
  // The rollout behind SDPO's prompt, which shows what a self-teacher reads.
  kSiblingRollout,
};
inline constexpr int kNumViews = 9;

// "none_rollout", ...
const char* ViewNameString(ViewName view);
// INVALID_ARGUMENT lists the views that there are.
absl::StatusOr<ViewName> ParseViewName(const std::string& name);

// Which of a sample's two answers is scored.
enum class Completion { kReference, kRollout };
Completion CompletionOf(ViewName view);
// Whether its tokens are known only once the rollout is there: it scores the
// rollout or shows it.
bool NeedsRollout(ViewName view);
// Whether it is one of the six that every sample has; the others are made
// where a term reads them.
bool IsAlwaysBuilt(ViewName view);
// Whether a sample whose answers are there may lack it although a term reads
// it: there is nothing to show in it. It then scores nothing, and a term that
// reads it is masked for this sample.
bool MayBeMissing(ViewName view);

struct View {
  std::vector<int32_t> input_ids;
  // Scored tokens are input_ids[scored_from, scored_from + scored_count);
  // the logits that predict them stand one position earlier.
  int64_t scored_from = 0;
  int64_t scored_count = 0;

  bool operator==(const View&) const = default;
};

// By ViewName; one that was not made is empty.
using Views = std::array<View, kNumViews>;
using NamedViews = std::map<ViewName, View>;

}  // namespace dapd
