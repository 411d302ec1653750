// Defines the views of a sample (docs/objective.md, "Views"). A view is a token
// sequence with a range of scored tokens. The configuration, messages and files
// use the names of this table.
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
  // kDemonstrationRollout has the rollout behind SDFT's prompt, which shows the
  // reference as an example of an answer. kProbeRollout has the rollout behind
  // the reference without its problem (Purified OPSD).
  kDemonstrationRollout,
  kProbeRollout,
  // This view has the rollout behind SDPO's prompt, which shows the
  // self-teacher's context.
  kSiblingRollout,
};
inline constexpr int kNumViews = 9;

// Returns "none_rollout", ...
const char* ViewNameString(ViewName view);
// The error is INVALID_ARGUMENT and lists the views.
absl::StatusOr<ViewName> ParseViewName(const std::string& name);

// Names the answer of a sample that is scored.
enum class Completion { kReference, kRollout };
Completion CompletionOf(ViewName view);
// Returns whether the view's tokens are known only after the rollout is
// sampled: the view scores the rollout or shows it.
bool NeedsRollout(ViewName view);
// Returns whether every sample has the view. Six views are in every sample; the
// other views are built if a term reads them.
bool IsAlwaysBuilt(ViewName view);
// Returns whether a sample with all its answers may lack the view although a
// term reads it, because there is nothing to show in it. The view then scores
// nothing, and a term that reads it is masked for this sample.
bool MayBeMissing(ViewName view);

struct View {
  std::vector<int32_t> input_ids;
  // The scored tokens are input_ids[scored_from, scored_from + scored_count);
  // the logits that predict them are one position earlier.
  int64_t scored_from = 0;
  int64_t scored_count = 0;

  bool operator==(const View&) const = default;
};

// The views of a sample are indexed by ViewName; a view that was not built is
// empty.
using Views = std::array<View, kNumViews>;
using NamedViews = std::map<ViewName, View>;

// Empties the views that score `completion`: no term counts a token of them
// then.
void DropViews(Completion completion, Views* views);

}  // namespace dapd
