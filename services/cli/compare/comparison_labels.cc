#include "services/cli/compare/comparison_labels.h"

#include "absl/strings/str_cat.h"

#include "common/base/printable.h"
#include "common/data/marker_label.h"

namespace dapd {

std::string GroupLabel(const RunGroup& group) {
  const size_t runs = group.runs.size();
  std::string label =
      absl::StrCat(group.name, " (", runs, runs == 1 ? " run" : " runs");
  if (group.num_seeds < runs) {
    absl::StrAppend(&label,
                    " of ",
                    group.num_seeds,
                    group.num_seeds == 1 ? " seed" : " seeds");
  }
  return label + ")";
}

std::string FigureTitle(const ComparedFigure& figure,
                        const std::string& words) {
  return figure.marker.empty()
             ? Printable(words)
             : absl::StrCat(Printable(words), ", ", MarkerLabel(figure.marker));
}

}  // namespace dapd
