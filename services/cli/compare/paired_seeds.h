// Differences over seeds by pairs. Runs of one seed have the same problems in
// the same order and sample with the same random numbers, as far as their other
// settings let them, so they go up and down together: the differences of pairs
// are known better than those of independent runs.
#pragma once

#include "absl/status/status.h"

#include "services/cli/compare/comparison.h"

namespace dapd {

// "change" and "against_first" of each group become the means of its runs',
// with Student's t interval over them; the partner of a run is the run of the
// first group that has its run.seed. Where all pairs agree, which says nothing
// about their spread, the interval stays as wide as that of independent runs. A
// pair whose figures are not all there is left out; fewer than two give none.
// Rows of single runs stay as they are.
//
// INVALID_ARGUMENT, exit code kUsage, names the group that keeps runs from
// being paired: every group has to have the same seeds, at least two, each
// once.
absl::Status PairBySeed(Comparison* comparison);

}  // namespace dapd
