#include "common/terms/view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace dapd {
namespace {

struct ViewRow {
  const char* name;
  Completion scored;
  bool needs_rollout;
  bool always_built;
  bool may_be_missing = false;
};

// The rows are indexed by ViewName.
constexpr std::array<ViewRow, kNumViews> kViews = {{
    {"none_rollout", Completion::kRollout, true, true},
    {"self_rollout", Completion::kRollout, true, true},
    {"cross_rollout", Completion::kRollout, true, true},
    {"none_reference", Completion::kReference, false, true},
    {"self_reference", Completion::kReference, false, true},
    {"cross_reference", Completion::kReference, true, true},
    {"demonstration_rollout", Completion::kRollout, true, false},
    {"probe_rollout", Completion::kRollout, true, false},
    {"sibling_rollout",
     Completion::kRollout,
     true,
     false,
     /*may_be_missing=*/true},
}};

const ViewRow& RowOf(ViewName view) {
  return kViews[static_cast<size_t>(view)];
}

}  // namespace

const char* ViewNameString(ViewName view) { return RowOf(view).name; }

absl::StatusOr<ViewName> ParseViewName(const std::string& name) {
  for (size_t i = 0; i < kViews.size(); ++i) {
    if (name == kViews[i].name) return static_cast<ViewName>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'",
      name,
      "' is not a view; the views are ",
      absl::StrJoin(kViews, ", ", [](std::string* out, const ViewRow& row) {
        out->append(row.name);
      })));
}

Completion CompletionOf(ViewName view) { return RowOf(view).scored; }

bool NeedsRollout(ViewName view) { return RowOf(view).needs_rollout; }

bool IsAlwaysBuilt(ViewName view) { return RowOf(view).always_built; }

bool MayBeMissing(ViewName view) { return RowOf(view).may_be_missing; }

void DropViews(Completion completion, Views* views) {
  for (size_t i = 0; i < views->size(); ++i) {
    if (kViews[i].scored == completion) (*views)[i] = {};
  }
}

}  // namespace dapd
